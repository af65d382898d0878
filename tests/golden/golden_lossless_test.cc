// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Lossless packets against a golden file that make_golden_lossless.py wrote from the text of the
// format alone.
#include <cstring>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "codec/lossless_packet.h"
#include "tests/golden/golden_file.h"

namespace onebit::testing {
namespace {

using nlohmann::json;

// The elements before and now, as bytes.
std::vector<std::byte> ElementsOf(const json& golden, bool is_now) {
  const size_t width = kernels::BytesOf(TypeNamed(golden["type"]));
  std::vector<std::byte> bytes(golden["count"].get<size_t>() * width);
  const auto set = [&](size_t i, uint64_t bits) {
    std::memcpy(bytes.data() + i * width, &bits, width);
  };
  for (size_t i = 0; i < bytes.size() / width; ++i) {
    set(i, golden["a"].get<uint64_t>() * i + golden["b"].get<uint64_t>());
  }
  for (const json& change : golden["changed"]) {
    if (is_now) set(change[0], change[1]);
  }
  return bytes;
}

TEST(GoldenLosslessTest, PacketsAreThoseOfTheText) {
  LosslessEncoder encoder;
  for (const json& golden : LoadGolden("lossless")) {
    SCOPED_TRACE(golden["name"]);
    const size_t width = kernels::BytesOf(TypeNamed(golden["type"]));
    const size_t count = golden["count"];
    const std::vector<std::byte> before = ElementsOf(golden, false);
    const std::vector<std::byte> now = ElementsOf(golden, true);
    std::vector<std::byte> packet = FromHex(golden["packet"]);
    const auto encoded = encoder.Encode(now.data(), before.data(), count, width);
    ASSERT_TRUE(encoded.ok());
    // A packet that is no shorter than the elements is not made.
    ASSERT_EQ(encoded.value().has_value(), packet.size() < now.size());
    if (encoded.value()) {
      EXPECT_EQ(HexOf(encoded.value()->data(), encoded.value()->size()), golden["packet"]);
    }
    std::vector<std::byte> copy = before;
    const size_t bytes = packet.size();
    packet.resize(bytes + kernels::kLosslessSlack);
    EXPECT_TRUE(DecodeLossless(std::span(packet).first(bytes), count, width, copy.data()));
    EXPECT_EQ(copy, now);
    EXPECT_FALSE(DecodeLossless(std::span(packet).first(bytes - 1), count, width, copy.data()));
    EXPECT_FALSE(DecodeLossless(std::span(packet).first(bytes + 1), count, width, copy.data()));
  }
}

}  // namespace
}  // namespace onebit::testing
