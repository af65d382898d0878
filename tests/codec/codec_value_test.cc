// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The value Codec: its text, its bytes, and the table of codecs.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "codec/codec.h"
#include "onebit/onebit.h"

namespace onebit {
namespace {

// Every codec of the public API, with and without feedback.
std::vector<Codec> AllCodecs() {
  std::vector<Codec> codecs;
  for (int32_t number = onebitCodecSign; FindCodec(number) != nullptr; ++number) {
    for (const bool has_feedback : {false, true}) {
      Codec codec = FindCodec(number)->codec;
      if (codec.is_lossless()) continue;  // its calls are dense ones
      codec.kind = codec.KindIn(has_feedback);
      if (codec.is_sparse()) codec.sparse.k = 64;
      codecs.push_back(codec);
    }
  }
  return codecs;
}

TEST(CodecTest, EveryCodecIsReadAsWritten) {
  std::set<std::tuple<uint8_t, uint8_t>> numbers;
  for (const Codec& codec : AllCodecs()) {
    for (const bool has_one_hop : {false, true}) {
      const CodecOnWire wire = ToWire(codec, has_one_hop);
      EXPECT_EQ(FromWire(wire, has_one_hop), codec) << codec.Text();
      EXPECT_EQ(FromWire(wire, !has_one_hop).has_value(), !codec.is_sparse()) << codec.Text();
      numbers.emplace(wire.kind, wire.rule);
    }
  }
  EXPECT_EQ(numbers.size(), 22u);  // those of sparse codecs say if there is one hop
}

TEST(CodecTest, BytesOfNoCodecAreRefused) {
  EXPECT_EQ(FromWire({.kind = 9}, false), std::nullopt);              // lossless
  EXPECT_EQ(FromWire({.kind = 1, .rule = 2}, false), std::nullopt);   // no scale rule
  EXPECT_EQ(FromWire({.kind = 3, .rule = 99}, false), std::nullopt);  // no low-bit codec
  EXPECT_EQ(FromWire({.kind = 5, .rule = 3, .block = 4096}, false), std::nullopt);  // k is 0
  for (const uint8_t kind : {7, 8}) {  // bf16 has neither a rule nor a block
    EXPECT_NE(FromWire({.kind = kind}, false), std::nullopt);
    EXPECT_EQ(FromWire({.kind = kind, .rule = 1}, false), std::nullopt);
    EXPECT_EQ(FromWire({.kind = kind, .block = 1}, false), std::nullopt);
  }
}

// A block of bf16 is one element.
TEST(CodecTest, SegmentsOfBf16BeginAtBytesOfTheMask) {
  for (const Codec& codec : AllCodecs()) EXPECT_EQ(codec.segment_unit() % 32, 0u) << codec.Text();
  EXPECT_EQ((Codec{.kind = CodecKind::kBf16, .block = 1}).segment_unit(), 64u);
}

TEST(CodecTest, EveryCodecHasATextOfItsOwn) {
  std::set<std::string> texts;
  for (const Codec& codec : AllCodecs()) {
    EXPECT_TRUE(texts.insert(codec.Text()).second) << codec.Text();
    EXPECT_EQ(codec.has_feedback(), std::string(codec.Mode()) == "ef") << codec.Text();
  }
  EXPECT_EQ(Codec().Text(), "dense");
  EXPECT_EQ(FindCodec(onebitCodecLossless)->codec.Text(), "lossless");
  EXPECT_EQ((Codec{.kind = CodecKind::kEf}).Text(), "ef block tensor l2");
  EXPECT_EQ((Codec{.kind = CodecKind::kSign, .rule = kernels::ScaleRule::kL1, .block = 64}).Text(),
            "sign block 64 l1");
  EXPECT_EQ((Codec{.kind = CodecKind::kLowBit, .block = 128}).Text(), "plain fp4 block 128");
  EXPECT_EQ((Codec{.kind = CodecKind::kSparseEf, .sparse = {.k = 5}, .block = 320}).Text(),
            "ef topk 5 of 320 as two magnitudes");
  EXPECT_EQ((Codec{.kind = CodecKind::kBf16Ef, .block = 1}).Text(), "ef bf16");
}

}  // namespace
}  // namespace onebit
