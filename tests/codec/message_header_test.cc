// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Headers: encoded and decoded again, damaged, from the future, and different between ranks.
#include "codec/message_header.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include <gtest/gtest.h>

namespace onebit {
namespace {

MessageHeader Sample() {
  return {
      .call = {.comm_id = 0xfeed'beef,
               .sequence = 0x1122'3344'5566'7788,
               .collective = Collective::kAllReduce,
               .count = 0x0102'0304'0506'0708,
               .tensor_id = 77,
               .type = kernels::DataType::kBf16,
               .op = ReduceOp::kAvg,
               .codec = {.kind = CodecKind::kEf, .rule = kernels::ScaleRule::kL1, .block = 4096},
               .chunk_alignment = 64,
               .has_server_residual = true,
               .is_one_exchange = true,
               .mask_digest = 99,
               .is_sync = true},
      .exchange = 2,
      .is_nonfinite = true,
      .has_payload_checksum = true,
      .segment = 3,
      .segment_count = 5,
      .payload_checksum = {.sum = 1234, .weighted = 5678},
  };
}

HeaderBytes Encoded(const MessageHeader& header) {
  HeaderBytes bytes;
  EncodeHeader(header, &bytes);
  return bytes;
}

// Every low-bit codec has a number of its own where signs have their scale rule.
TEST(MessageHeaderTest, DecodesLowBitCodecs) {
  using kernels::LowBitCodec;
  const std::pair<LowBitCodec, uint8_t> numbers[] = {{LowBitCodec::kInt8, 0x00},
                                                     {LowBitCodec::kInt8Stochastic, 0x70},
                                                     {LowBitCodec::kFp4, 0x05},
                                                     {LowBitCodec::kInt2, 0x0a},
                                                     {LowBitCodec::kUint8, 0x0c}};
  for (const auto& [codec, number] : numbers) {
    for (const CodecKind kind : {CodecKind::kLowBit, CodecKind::kLowBitEf}) {
      MessageHeader header = Sample();
      header.call.codec = {.kind = kind, .low_bit = codec, .block = 4096};
      const HeaderBytes bytes = Encoded(header);
      EXPECT_EQ(static_cast<uint8_t>(bytes[47]), static_cast<uint8_t>(kind));
      EXPECT_EQ(static_cast<uint8_t>(bytes[50]), number);
      auto decoded = DecodeHeader(bytes);
      ASSERT_TRUE(decoded.ok()) << decoded.status().text();
      EXPECT_EQ(decoded.value().call, header.call);
    }
  }
}

MessageHeader SparseSample() {
  MessageHeader header = Sample();
  header.call.codec = {.kind = CodecKind::kSparse,
                       .sparse = {.k = 64, .is_random = true, .is_unbiased = true},
                       .block = 4096};
  return header;
}

// Values, draws, hops and the factor are bits where signs have their scale rule; k is above the
// block.
TEST(MessageHeaderTest, DecodesSparseCodecs) {
  using kernels::SparseValues;
  for (const bool has_one_hop : {false, true}) {
    for (const auto& [codec, number] :
         {std::pair<kernels::SparseCodec, int>{{.k = 64}, 0x03},
          {{.k = 1, .values = SparseValues::kF32}, 0x00},
          {{.k = 341, .is_random = true}, 0x0b},
          {{.k = 2048, .values = SparseValues::kF32, .is_random = true, .is_unbiased = true},
           0x28}}) {
      MessageHeader header = SparseSample();
      header.call.codec.sparse = codec;
      header.call.is_one_exchange = has_one_hop;
      const HeaderBytes bytes = Encoded(header);
      EXPECT_EQ(static_cast<int>(bytes[47]), 5);
      EXPECT_EQ(static_cast<int>(bytes[50]), number | (has_one_hop ? 0x10 : 0));
      EXPECT_EQ(static_cast<int>(bytes[41]), 0x10);  // 4096
      EXPECT_EQ(static_cast<int>(bytes[42]) | static_cast<int>(bytes[43]) << 8, codec.k);
      auto decoded = DecodeHeader(bytes);
      ASSERT_TRUE(decoded.ok()) << decoded.status().text();
      EXPECT_EQ(decoded.value().call, header.call);
    }
  }
}

TEST(MessageHeaderTest, RejectsSparseMembersThatNoCodecHas) {
  const auto refuses = [](auto change) {
    MessageHeader header = SparseSample();
    change(header.call);
    const auto decoded = DecodeHeader(Encoded(header));
    return !decoded.ok() && decoded.status().code() == Code::kCorrupt;
  };
  EXPECT_FALSE(refuses([](auto&) {}));
  for (const uint32_t block : {0, 64, 256, 300, 4160}) {
    EXPECT_TRUE(refuses([&](auto& c) { c.codec.block = block; })) << block;
  }
  EXPECT_TRUE(refuses([](auto& c) { c.codec.sparse.k = 0; }));
  EXPECT_TRUE(refuses([](auto& c) { c.codec.sparse.k = 2049; }));
  EXPECT_TRUE(refuses([](auto& c) { c.codec.sparse = {.k = 2049}; }));
  EXPECT_TRUE(refuses([](auto& c) { c.codec.sparse = {.k = 1, .is_unbiased = true}; }));
  EXPECT_TRUE(refuses([](auto& c) { c.codec.kind = CodecKind::kSparseEf; }));  // is unbiased
}

TEST(MessageHeaderTest, DifferencesOfSparseCallsAreNamed) {
  const CallDescriptor here = SparseSample().call;
  const auto difference = [&](auto change) {
    CallDescriptor there = here;
    change(there);
    return DescribeDifference(here, there);
  };
  EXPECT_EQ(difference([](auto& c) { c.codec.sparse.k = 3; }), "k 64 here, 3 there");
  EXPECT_EQ(difference([](auto& c) { c.codec.sparse.values = kernels::SparseValues::kF32; }),
            "values two magnitudes here, fp32 there");
  EXPECT_EQ(difference([](auto& c) { c.is_one_exchange = false; }), "hops 1 here, 2 there");
  CallDescriptor seeded = here, other = here;
  seeded.is_sync = other.is_sync = false;
  seeded.mask_digest = 99 ^ 7;  // of a mask and of a seed
  other.mask_digest = 99 ^ 8;
  EXPECT_EQ(DescribeDifference(seeded, other, 99),
            "seed (its halves combined by xor, where masks are equal) 7 here, 8 there");
  EXPECT_EQ(Describe({.sequence = 4,
                      .collective = Collective::kAllReduce,
                      .count = 10,
                      .codec = {.kind = CodecKind::kSparseEf, .sparse = {.k = 64}, .block = 4096}}),
            "allreduce 4 of 10 float32, sum, ef topk 64 of 4096 as two magnitudes, tensor 0");
}

TEST(MessageHeaderTest, DecodesWhatItEncodes) {
  const MessageHeader header = Sample();
  auto decoded = DecodeHeader(Encoded(header));
  ASSERT_TRUE(decoded.ok()) << decoded.status().text();
  EXPECT_EQ(decoded.value().call, header.call);
  EXPECT_EQ(decoded.value().exchange, 2);
  EXPECT_TRUE(decoded.value().is_nonfinite);
  EXPECT_TRUE(decoded.value().has_payload_checksum);
  EXPECT_FALSE(decoded.value().has_failed);
  EXPECT_EQ(decoded.value().segment, 3);
  EXPECT_EQ(decoded.value().segment_count, 5);
  EXPECT_EQ(decoded.value().payload_checksum, header.payload_checksum);
}

TEST(MessageHeaderTest, TypesAndOpsHaveTheirNumbers) {
  using kernels::DataType;
  uint8_t number = 0;
  for (const DataType type : {DataType::kF32, DataType::kF16, DataType::kBf16, DataType::kI32,
                              DataType::kI64, DataType::kU8, DataType::kF64}) {
    MessageHeader header = Sample();
    header.call.type = type;
    const HeaderBytes bytes = Encoded(header);
    EXPECT_EQ(bytes[45], std::byte{number++});
    EXPECT_EQ(DecodeHeader(bytes).value().call, header.call);
  }
  for (const auto& [op, code] : {std::pair<ReduceOp, uint8_t>{ReduceOp::kSum, 0},
                                 {ReduceOp::kMax, 2},
                                 {ReduceOp::kMin, 3},
                                 {ReduceOp::kAvg, 4}}) {
    MessageHeader header = Sample();
    header.call.op = op;
    const HeaderBytes bytes = Encoded(header);
    EXPECT_EQ(bytes[46], std::byte{code});
    EXPECT_EQ(DecodeHeader(bytes).value().call, header.call);
  }
}

TEST(MessageHeaderTest, RejectsEveryOtherLength) {
  std::array<std::byte, kHeaderBytes + 8> bytes = {};
  const HeaderBytes good = Encoded(Sample());
  std::copy(good.begin(), good.end(), bytes.begin());
  for (size_t length = 0; length <= bytes.size(); ++length) {
    const auto decoded = DecodeHeader(std::span(bytes).first(length));
    EXPECT_EQ(decoded.ok(), length == kHeaderBytes) << length;
    if (length != kHeaderBytes) {
      EXPECT_EQ(decoded.status().code(), Code::kCorrupt);
    }
  }
}

TEST(MessageHeaderTest, NoticesEveryFlippedBit) {
  for (size_t bit = 0; bit < 8 * kHeaderBytes; ++bit) {
    HeaderBytes bytes = Encoded(Sample());
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    const auto decoded = DecodeHeader(bytes);
    ASSERT_FALSE(decoded.ok()) << "bit " << bit;
    const bool is_version = bit / 8 == 4;
    EXPECT_EQ(decoded.status().code(), is_version ? Code::kMismatch : Code::kCorrupt)
        << "bit " << bit;
  }
}

TEST(MessageHeaderTest, NamesBothVersionsOfAFutureHeader) {
  HeaderBytes bytes = Encoded(Sample());
  for (const int version : {0, 2, 9, 255}) {
    bytes[4] = static_cast<std::byte>(version);
    const auto decoded = DecodeHeader(bytes);
    ASSERT_FALSE(decoded.ok());
    EXPECT_EQ(decoded.status().text(),
              Format("packet has version {}, this library reads 1: use one version on all ranks",
                     version));
  }
}

// A damaged member under a valid header check, as a bug in a peer would send it.
TEST(MessageHeaderTest, TellsOfAFailure) {
  MessageHeader header = Sample();
  header.is_nonfinite = false;
  header.has_failed = true;
  const HeaderBytes bytes = Encoded(header);
  EXPECT_EQ(bytes[6], std::byte{6}) << "bits 1 and 2 of the flags";
  const auto decoded = DecodeHeader(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status().text();
  EXPECT_TRUE(decoded.value().has_failed);
  EXPECT_FALSE(decoded.value().is_nonfinite);
}

TEST(MessageHeaderTest, RejectsMembersOutsideTheirRange) {
  const auto refuses = [](auto change) {
    MessageHeader header = Sample();
    change(header);
    const auto decoded = DecodeHeader(Encoded(header));
    return !decoded.ok() && decoded.status().code() == Code::kCorrupt;
  };
  EXPECT_TRUE(refuses([](auto& h) { h.exchange = 0; }));
  EXPECT_TRUE(refuses([](auto& h) { h.exchange = 3; }));
  EXPECT_TRUE(refuses([](auto& h) { h.segment = 5; }));
  EXPECT_TRUE(refuses([](auto& h) { h.segment_count = 0; }));
  EXPECT_TRUE(refuses([](auto& h) { h.call.collective = static_cast<Collective>(9); }));
  EXPECT_TRUE(refuses([](auto& h) { h.call.type = static_cast<kernels::DataType>(7); }));
  EXPECT_TRUE(refuses([](auto& h) { h.call.op = static_cast<ReduceOp>(1); }));
  EXPECT_TRUE(refuses([](auto& h) { h.call.op = static_cast<ReduceOp>(5); }));
  EXPECT_TRUE(refuses([](auto& h) { h.call.codec.kind = static_cast<CodecKind>(9); }));
  EXPECT_TRUE(refuses([](auto& h) { h.call.codec.rule = static_cast<kernels::ScaleRule>(2); }));
  EXPECT_TRUE(refuses([](auto& h) {
    h.call.codec.kind = CodecKind::kLowBit;
    h.call.codec.low_bit = static_cast<kernels::LowBitCodec>(99);
  }));
}

// There two ranks of a host exchange segments of the chunks of all hosts.
TEST(MessageHeaderTest, HasUpToFourExchangesWithTwoLevels) {
  struct Levels {
    Collective collective;
    int exchanges;
    std::vector<int> inside_hosts;  // where segments of several chunks are counted on
  };
  const Levels kLevels[] = {{Collective::kAllReduce, 4, {1, 4}},  {Collective::kGroup, 4, {1, 4}},
                            {Collective::kReduceScatter, 3, {1}}, {Collective::kAllGather, 3, {2}},
                            {Collective::kBroadcast, 3, {3}},     {Collective::kBarrier, 0, {}},
                            {Collective::kAllToAll, 0, {}},       {Collective::kSendRecv, 0, {}}};
  MessageHeader header = Sample();
  header.call.is_one_exchange = false;
  header.call.has_two_levels = true;
  for (const Levels& levels : kLevels) {
    header.call.collective = levels.collective;
    for (int exchange = 0; exchange <= 5; ++exchange) {
      for (const uint16_t segment : {0, 4, 5, 65'535}) {
        header.exchange = static_cast<uint8_t>(exchange);
        header.segment = segment;
        const auto decoded = DecodeHeader(Encoded(header));
        const bool is_inside_host = std::ranges::count(levels.inside_hosts, exchange) != 0;
        EXPECT_EQ(decoded.ok(),
                  exchange >= 1 && exchange <= levels.exchanges && (segment < 5 || is_inside_host))
            << NameOf(levels.collective) << ", exchange " << exchange << ", segment " << segment;
        if (decoded.ok()) {
          EXPECT_EQ(decoded.value().call, header.call);
        }
      }
    }
  }
  header.call.collective = Collective::kAllReduce;
  header.exchange = 1;
  header.segment = 0;
  header.call.is_one_exchange = true;
  EXPECT_FALSE(DecodeHeader(Encoded(header)).ok());
}

// All parameters are known, but two levels do not go with the sample's single exchange.
TEST(MessageHeaderTest, RejectsFlagsAndParametersThatItDoesNotKnow) {
  for (const auto& [offset, known] : {std::pair<size_t, unsigned>{6, 0x07}, {51, 0xef}}) {
    for (unsigned bit = 1; bit < 256; bit *= 2) {
      HeaderBytes bytes = Encoded(Sample());
      bytes[offset] |= static_cast<std::byte>(bit);
      uint32_t words[kHeaderBytes / 4];
      std::memcpy(words, bytes.data(), kHeaderBytes);
      words[3] = 0;  // the check
      uint32_t sum = 0, weighted = 0;
      for (uint32_t i = 0; i < std::size(words); ++i) {
        sum += words[i];
        weighted += (i + 1) * words[i];
      }
      words[3] = sum ^ (weighted << 16 | weighted >> 16);
      std::memcpy(bytes.data(), words, kHeaderBytes);
      EXPECT_EQ(DecodeHeader(bytes).ok(), (bit & known) != 0) << "offset " << offset << ", " << bit;
    }
  }
}

TEST(GroupDigestTest, TellsCallsApartButNotWhereAndWhenTheyAreMade) {
  const CallDescriptor call = Sample().call;
  const auto digest = [&](auto change) {
    CallDescriptor other = call;
    change(other);
    return DigestOf(other, 1);
  };
  const uint32_t own = DigestOf(call, 1);
  for (uint64_t count = 0; count < 16; ++count) {
    EXPECT_EQ(digest([count](auto& c) { c.count = count; }) & kGroupNonfinite, 0u) << count;
  }
  EXPECT_EQ(digest([](auto& c) { c.comm_id = 1; }), own);
  EXPECT_EQ(digest([](auto& c) { c.sequence = 1; }), own);
  EXPECT_NE(digest([](auto& c) { c.count += 1; }), own);
  EXPECT_NE(digest([](auto& c) { c.count += 8; }), own);
  EXPECT_NE(digest([](auto& c) { c.tensor_id = 78; }), own);
  EXPECT_NE(digest([](auto& c) { c.op = ReduceOp::kSum; }), own);
  EXPECT_NE(digest([](auto& c) { c.replica_age = 1; }), own);
  EXPECT_NE(digest([](auto& c) { c.mask_digest = 0; }), own);
  EXPECT_NE(DigestOf(call, 2), own);
}

// The bytes of FORMAT.md, section 14: a dense fp32 sum of 3 elements, one segment.
TEST(GroupDigestTest, IsTheHeaderCheckOfTheCallAlone) {
  const CallDescriptor call = {
      .collective = Collective::kAllReduce, .count = 3, .chunk_alignment = 64};
  uint32_t words[16] = {};
  words[0] = 0x5449'4231;   // "1BIT"
  words[1] = 1 | 1 << 8;    // version 1, exchange 1
  words[6] = 3;             // count
  words[11] = 2;            // allreduce, fp32, sum, dense
  words[12] = 64;           // chunk alignment
  words[13] = 0 | 1 << 16;  // segment 0 of 1
  uint32_t sum = 0, weighted = 0;
  for (uint32_t i = 0; i < 16; ++i) {
    sum += words[i];
    weighted += (i + 1) * words[i];
  }
  const uint32_t check = sum ^ (weighted << 16 | weighted >> 16);
  EXPECT_EQ(DigestOf(call, 1), check & ~1u);
}

TEST(GroupDigestTest, OfATableDependsOnTheOrderOfCalls) {
  const uint32_t one[] = {10, 20, 30}, other[] = {20, 10, 30};
  EXPECT_NE(GroupDigest(one), GroupDigest(other));
  EXPECT_EQ(GroupDigest(one), 60u ^ ((1 * 10 + 2 * 20 + 3 * 30) << 16));
}

TEST(MessageHeaderTest, DescribesGroups) {
  const CallDescriptor here = {.sequence = 7, .collective = Collective::kGroup, .count = 3};
  CallDescriptor there = here;
  EXPECT_EQ(Describe(here), "group 7 of 3 calls");
  there.mask_digest = 1;
  EXPECT_EQ(DescribeDifference(here, there), "digest of its calls 0 here, 1 there");
  there.count = 4;
  EXPECT_EQ(DescribeDifference(here, there), "calls in the group 3 here, 4 there");
  MessageHeader header = Sample();
  header.call = here;
  const auto decoded = DecodeHeader(Encoded(header));
  ASSERT_TRUE(decoded.ok()) << decoded.status().text();
  EXPECT_EQ(decoded.value().call, here);
}

TEST(MessageHeaderTest, DifferenceNamesEachMemberAndBothSides) {
  const CallDescriptor here = Sample().call;
  const auto difference = [&](auto change) {
    CallDescriptor there = here;
    change(there);
    return DescribeDifference(here, there);
  };
  EXPECT_EQ(difference([](auto&) {}), "");
  EXPECT_EQ(difference([](auto& c) { c.codec.block = 0; }), "block 4096 here, tensor there");
  EXPECT_EQ(difference([](auto& c) { c.op = ReduceOp::kSum; }), "op avg here, sum there");
  EXPECT_EQ(difference([](auto& c) { c.codec.kind = CodecKind::kDense; }),
            "mode ef here, dense there");
  EXPECT_EQ(difference([](auto& c) { c.tensor_id = 78; }), "tensor id 77 here, 78 there");
  EXPECT_EQ(
      difference([](auto& c) { c.mask_digest = 0; }),
      "the weight sum, or the mask: pass equal weights to onebitSyncStep, and equal schedules to "
      "onebitSyncCreate");
  EXPECT_EQ(difference([](auto& c) { c.is_sync = false; }), "sync true here, false there");
  EXPECT_EQ(difference([](auto& c) { c.replica_age = 10; }),
            Format("age of the server residual (calls since it was zero) {} here, 10 there",
                   here.replica_age));
  EXPECT_EQ(difference([](auto& c) { c.chunk_alignment = 8; }),
            Format("chunk alignment {} here, 8 there", here.chunk_alignment));
  EXPECT_EQ(difference([](auto& c) { c.has_two_levels = true; }),
            "two levels (config.levels, ONEBIT_TWO_LEVEL_BYTES) false here, true there");
  CallDescriptor plain = here;
  plain.is_sync = false;
  CallDescriptor masked = plain;
  masked.mask_digest = 0;
  EXPECT_EQ(DescribeDifference(plain, masked), "mask digest 99 here, 0 there");
  CallDescriptor cut = plain;
  cut.has_cuts = true;
  EXPECT_EQ(DescribeDifference(plain, cut), "cuts false here, true there");
  plain.has_cuts = true;
  cut.mask_digest = 98;
  EXPECT_EQ(DescribeDifference(plain, cut), "digest of mask and cuts 99 here, 98 there");
  EXPECT_EQ(difference([](auto& c) {
              c.count = 10;
              c.type = kernels::DataType::kF16;
            }),
            "count 72623859790382856 here, 10 there; type bfloat16 here, float16 there");
}

TEST(MessageHeaderTest, DescribesACallInWords) {
  CallDescriptor call = Sample().call;
  call.sequence = 17;
  call.count = 1024;
  EXPECT_EQ(Describe(call), "allreduce 17 of 1024 bfloat16, avg, ef block 4096 l1, tensor 77");
  EXPECT_EQ(Describe({.sequence = 3}), "barrier 3");
  EXPECT_EQ(Describe({.collective = Collective::kBroadcast, .count = 5, .tensor_id = 2}),
            "broadcast 0 of 5 float32 from rank 2");
}

}  // namespace
}  // namespace onebit
