// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls in two levels, from the public API down, against golden files that make_golden_levels.py
// wrote from the text of the format alone: outputs, residuals, saved states, and headers of every
// exchange.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "onebit/state.h"
#include "tests/golden/golden_calls.h"
#include "tests/support/chunk_calls.h"
#include "tests/support/exported_state.h"

namespace onebit::testing {
namespace {

using nlohmann::json;

class GoldenLevelsTest : public ::testing::TestWithParam<const char*> {
 protected:
  bool is_reduce_scatter() const { return golden_["collective"] == "reduce_scatter"; }
  bool is_sum() const { return golden_["op"] == "sum"; }
  size_t count() const { return golden_["count"]; }
  onebitDataType_t type() const { return ApiType(TypeNamed(golden_["kind"])); }

  std::vector<CommOptions> Options() const {
    CommOptions options = kPatient;
    options.segment_elements = golden_["segment"];
    return OnHosts(golden_["hosts"].get<std::string>(), options);
  }

  UniqueCompressor MakeCompressor(onebitComm_t comm) const {
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.collective =
        is_reduce_scatter() ? onebitCollectiveReduceScatter : onebitCollectiveAllReduce;
    config.codec = golden_["codec"] == "fp4" ? onebitCodecFp4 : onebitCodecSign;
    config.block = golden_["block"];
    config.residualType = ApiType(TypeNamed(golden_["residual"]));
    if (!is_reduce_scatter()) config.chunkAlignment = golden_["align"];
    config.tensorId = kGoldenTensor;
    config.levels = 2;
    return NewCompressor(comm, count(), type(), config);
  }

  void MakeCalls(onebitComm_t comm, onebitCompressor_t compressor, size_t rank) const {
    for (const json& call : golden_["calls"]) {
      const std::vector<std::byte> input = FromHex(call["x"][rank]);
      const std::vector<std::byte> expected = FromHex(call["out"][is_reduce_scatter() ? rank : 0]);
      std::vector<std::byte> output(count() * kernels::BytesOf(TypeNamed(golden_["kind"])));
      ASSERT_EQ(
          MakeCall(is_reduce_scatter() ? onebitCollectiveReduceScatter : onebitCollectiveAllReduce,
                   {.send = input.data(),
                    .receive = output.data(),
                    .count = count(),
                    .type = type(),
                    .op = is_sum() ? onebitSum : onebitAvg,
                    .compressor = compressor},
                   comm),
          onebitSuccess)
          << onebitGetLastError(nullptr);
      EXPECT_TRUE(output == expected) << "rank " << rank;
    }
    EXPECT_EQ(StatsOf(comm).two_level_calls, golden_["calls"].size());
  }

  CallDescriptor Descriptor() const {
    CallDescriptor descriptor = GoldenDescriptor(golden_);
    descriptor.codec =
        FindCodec(golden_["codec"] == "fp4" ? onebitCodecFp4 : onebitCodecSign)->codec;
    descriptor.codec.kind = descriptor.codec.KindIn(true);
    descriptor.codec.block = golden_["block"];
    descriptor.has_server_residual = true;
    descriptor.has_two_levels = true;
    if (is_reduce_scatter()) {
      descriptor.collective = Collective::kReduceScatter;
      descriptor.count = count();
      descriptor.chunk_alignment = 0;
      descriptor.has_server_residual = false;
    }
    return descriptor;
  }

  const json golden_ = LoadGolden(GetParam());
};

TEST_P(GoldenLevelsTest, CallsReproduceOutputsAndResiduals) {
  CommGroup group(Options());
  group.Run([&](int number) {
    const auto rank = static_cast<size_t>(number);
    const onebitComm_t comm = group.comm(number);
    UniqueCompressor compressor = MakeCompressor(comm);
    MakeCalls(comm, compressor.get(), rank);
    const Residuals residuals = ResidualsOf(compressor.get());
    EXPECT_TRUE(residuals.worker == FromHex(golden_["e"][rank])) << "rank " << rank;
    EXPECT_TRUE(residuals.server == FromHex(golden_["s"][rank])) << "rank " << rank;
    EXPECT_TRUE(StateOf(compressor.get(), onebitStateGlobal) == FromHex(golden_["state_of_all"]))
        << "rank " << rank;

    const std::vector<std::byte> state = FromHex(golden_["states"][rank]);
    EXPECT_TRUE(StateOf(compressor.get(), onebitStateRank) == state) << "rank " << rank;
    compressor.reset();
    compressor = MakeCompressor(comm);
    EXPECT_EQ(onebitCompressorImport(compressor.get(), state.data(), state.size()), onebitSuccess)
        << onebitGetLastError(nullptr);
    EXPECT_TRUE(StateOf(compressor.get(), onebitStateRank) == state) << "rank " << rank;
  });
}

TEST_P(GoldenLevelsTest, HeadersReproduceTheirBytes) {
  const CallDescriptor descriptor = Descriptor();
  const json& messages = golden_["headers"];
  ASSERT_EQ(messages.size(), LastExchangeOfLevels(descriptor.collective));
  for (const json& message : messages) {
    SCOPED_TRACE(message["exchange"].get<int>());
    ExpectHeader(message["header"], descriptor);
    const auto payload = FromHex(message["payload"]);
    MessageHeader header = {.call = descriptor,
                            .exchange = message["exchange"],
                            .has_payload_checksum = message["flags"] == 2,
                            .segment = message["segment"],
                            .segment_count = golden_["segments"]};
    if (header.has_payload_checksum) {
      header.payload_checksum = kernels::reference::ChecksumOf(payload.data(), payload.size());
    }
    HeaderBytes encoded;
    EncodeHeader(header, &encoded);
    EXPECT_EQ(HexOf(encoded.data(), encoded.size()), message["header"]);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenLevelsTest,
                         ::testing::Values("levels_all_reduce", "levels_all_reduce_sum_bf16",
                                           "levels_reduce_scatter", "levels_all_reduce_fp4"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace onebit::testing
