// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Checks of golden files of allreduces that do not depend on the codec: headers, and whole calls
// from the public API down.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "codec/message_header.h"
#include "tests/golden/golden_file.h"
#include "tests/support/comm_group.h"
#include "tests/support/residuals.h"
#include "tests/support/tensor.h"

namespace onebit::testing {

inline constexpr uint32_t kGoldenTensor = 7;

// Packed; empty if all elements take part.
inline std::vector<uint8_t> MaskOf(const nlohmann::json& golden) {
  if (!golden.contains("mask")) return {};
  std::vector<uint8_t> mask(kernels::BitBytes(golden["d"]));
  for (size_t i = 0; i < golden["d"]; ++i) {
    if (golden["mask"][i] == 1) mask[i / 8] |= static_cast<uint8_t>(1u << (i % 8));
  }
  return mask;
}

// The members of a call's headers that do not depend on the codec.
inline CallDescriptor GoldenDescriptor(const nlohmann::json& golden) {
  return {.comm_id = 0xc0ffee,
          .collective = Collective::kAllReduce,
          .count = golden["d"],
          .tensor_id = kGoldenTensor,
          .type = TypeNamed(golden["kind"]),
          .op = golden["op"] == "sum" ? ReduceOp::kSum : ReduceOp::kAvg,
          .codec = {.block = golden["block"]},
          .chunk_alignment = golden["align"]};
}

// Decodes a header and encodes it again. It must be that of `expected`, of which the mask digest is
// not compared.
inline void ExpectHeader(const nlohmann::json& hex, CallDescriptor expected) {
  const auto bytes = FromHex(hex);
  auto decoded = DecodeHeader(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status().text();
  const MessageHeader header = decoded.value();
  expected.mask_digest = header.call.mask_digest;
  EXPECT_EQ(DescribeDifference(expected, header.call), "");
  EXPECT_EQ(header.call, expected);
  HeaderBytes encoded;
  EncodeHeader(header, &encoded);
  EXPECT_EQ(HexOf(encoded.data(), encoded.size()), HexOf(bytes.data(), bytes.size()));
}

// Makes the calls with a compressor of this configuration, which has what depends on the codec.
inline void ExpectCalls(const nlohmann::json& golden, onebitCompressorConfig_t config) {
  const std::vector<uint8_t> mask = MaskOf(golden);
  const bool has_feedback = golden["mode"] == "ef";
  config.mode = has_feedback ? onebitModeEf : onebitModePlain;
  config.block = golden["block"];
  config.residualType = ApiType(TypeNamed(golden["residual"]));
  config.tensorId = kGoldenTensor;
  config.seed = golden["seed"];
  config.mask = mask.empty() ? nullptr : mask.data();
  CommGroup group(golden["n"]);
  group.Run([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    const kernels::DataType type = TypeNamed(golden["kind"]);
    const size_t count = golden["d"];
    const UniqueCompressor compressor =
        NewCompressor(group.comm(rank), count, ApiType(type), config);
    for (const nlohmann::json& call : golden["calls"]) {
      const std::vector<std::byte> x = FromHex(call["x"][r]);
      Tensor input(count, type);
      Tensor output(count, type);
      std::memcpy(input.data(), x.data(), x.size());
      ASSERT_EQ(onebitAllReduce(input.data(), output.data(), count, ApiType(type),
                                golden["op"] == "sum" ? onebitSum : onebitAvg, compressor.get(),
                                group.comm(rank), nullptr),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      EXPECT_EQ(HexOf(output.data(), output.bytes()), call["out"]);
    }
    if (!has_feedback) return;
    const Residuals residuals = ResidualsOf(compressor.get());
    EXPECT_EQ(HexOf(residuals.worker.data(), residuals.worker.size()), golden["e"][r]);
  });
}

}  // namespace onebit::testing
