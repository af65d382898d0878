// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter, all-gather and all-to-all, from the public API down, against golden files that
// make_golden_parts.py wrote from the text of the format alone.
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "codec/message_header.h"
#include "tests/golden/golden_file.h"
#include "tests/support/chunk_calls.h"
#include "tests/support/comm_group.h"
#include "tests/support/residuals.h"
#include "tests/support/tensor.h"

namespace onebit::testing {
namespace {

using kernels::DataType;
using nlohmann::json;

struct Kind {
  Collective in_header;
  onebitCollective_t in_api;
};
Kind KindNamed(const std::string& name) {
  if (name == "reduce_scatter") return {Collective::kReduceScatter, onebitCollectiveReduceScatter};
  if (name == "all_gather") return {Collective::kAllGather, onebitCollectiveAllGather};
  return {Collective::kAllToAll, onebitCollectiveAllToAll};
}

class GoldenPartsTest : public ::testing::TestWithParam<const char*> {
 protected:
  bool is_ef() const { return golden_["mode"] == "ef"; }

  void PlayRank(onebitComm_t comm, size_t rank) const {
    const Kind kind = KindNamed(golden_["collective"]);
    const onebitDataType_t type = ApiType(TypeNamed(golden_["kind"]));
    const size_t ranks = golden_["n"];
    const size_t count = golden_["q"];
    std::vector<std::byte> mask;
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.collective = kind.in_api;
    config.mode = is_ef() ? onebitModeEf : onebitModePlain;
    config.block = golden_["block"];
    config.scaleRule = golden_["rule"] == "l1" ? onebitScaleL1 : onebitScaleL2;
    config.residualType = ApiType(TypeNamed(golden_["residual"]));
    if (golden_.contains("mask")) {
      mask = FromHex(golden_["mask"]);
      config.mask = reinterpret_cast<const uint8_t*>(mask.data());
    }
    const UniqueCompressor compressor = NewCompressor(comm, count, type, config);
    for (const json& call : golden_["calls"]) {
      const std::vector<std::byte> input = FromHex(call["x"][rank]);
      const std::vector<std::byte> expected = FromHex(call["out"][rank]);
      std::vector<std::byte> output(expected.size());
      ASSERT_EQ(output.size(), count * ReceiveParts(kind.in_api, ranks) *
                                   kernels::BytesOf(TypeNamed(golden_["kind"])));
      ASSERT_EQ(MakeCall(kind.in_api,
                         {.send = input.data(),
                          .receive = output.data(),
                          .count = count,
                          .type = type,
                          .op = golden_["op"] == "sum" ? onebitSum : onebitAvg,
                          .compressor = compressor.get()},
                         comm),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      EXPECT_TRUE(output == expected) << "rank " << rank;
    }
    if (is_ef()) {
      EXPECT_TRUE(ResidualsOf(compressor.get()).worker == FromHex(golden_["e"][rank]))
          << "rank " << rank;
    }
  }

  const json golden_ = LoadGolden(GetParam());
};

TEST_P(GoldenPartsTest, CallsReproduceOutputsAndResiduals) {
  CommGroup group(golden_["n"]);
  group.Run([&](int rank) { PlayRank(group.comm(rank), static_cast<size_t>(rank)); });
}

TEST_P(GoldenPartsTest, HeadersReproduceTheirBytes) {
  const Kind kind = KindNamed(golden_["collective"]);
  const bool has_replica = kind.in_header == Collective::kAllGather && is_ef();
  CallDescriptor descriptor = {
      .comm_id = 0xc0ffee,
      .collective = kind.in_header,
      .count = golden_["q"],
      .tensor_id = 7,
      .type = TypeNamed(golden_["kind"]),
      .op = golden_["op"] == "sum" ? ReduceOp::kSum : ReduceOp::kAvg,
      .codec = {.kind = is_ef() ? CodecKind::kEf : CodecKind::kSign,
                .rule = golden_["rule"] == "l1" ? kernels::ScaleRule::kL1 : kernels::ScaleRule::kL2,
                .block = golden_["block"]},
      .is_replica_transactional = has_replica,
  };
  for (uint64_t number = 0; number < golden_["calls"].size(); ++number) {
    const json& call = golden_["calls"][number];
    descriptor.sequence = number;
    if (has_replica) descriptor.replica_age = static_cast<uint8_t>(number);
    for (const int exchange : {1, 2}) {
      const auto expected = FromHex(call[exchange == 1 ? "header1" : "header2"]);
      const auto decoded = DecodeHeader(expected);
      ASSERT_TRUE(decoded.ok()) << decoded.status().text();
      descriptor.mask_digest = decoded.value().call.mask_digest;
      MessageHeader header = {.call = descriptor,
                              .exchange = static_cast<uint8_t>(exchange),
                              .has_payload_checksum = true};
      if (exchange == 1) {
        const auto payload = FromHex(call["packet"]);
        header.payload_checksum = kernels::reference::ChecksumOf(payload.data(), payload.size());
      }
      HeaderBytes encoded;
      EncodeHeader(header, &encoded);
      EXPECT_EQ(std::memcmp(encoded.data(), expected.data(), kHeaderBytes), 0)
          << "call " << number << ", exchange " << exchange << ": "
          << DescribeDifference(descriptor, decoded.value().call);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenPartsTest,
                         ::testing::Values("reduce_scatter_ef", "reduce_scatter_ef_sum",
                                           "all_gather_ef", "all_gather_ef_bf16", "all_gather_sign",
                                           "all_to_all_ef", "all_to_all_ef_bf16"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace onebit::testing
