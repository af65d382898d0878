// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// States in bytes: the reader returns what was written and refuses everything else.
#include "base/state_blob.h"

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/digest.h"
#include "state/state_identity.h"

namespace onebit {
namespace {

using Blob = std::vector<std::byte>;

constexpr size_t kAtVersion = 8;
constexpr size_t kAtKind = 12;
constexpr size_t kAtTotal = 16;
constexpr size_t kAtHeaderBytes = 24;
constexpr size_t kAtSectionCount = 28;
constexpr size_t kAtCheck = 32;
constexpr size_t kAtFirstRow = 40;
constexpr size_t kAtFirstLength = kAtFirstRow + 8;
constexpr size_t kSections = 2;
constexpr size_t kSectionBytes[kSections] = {5, 16};

Blob SmallBlob() {
  const StateSection sections[kSections] = {{SectionTag::kIdentity, kSectionBytes[0]},
                                            {SectionTag::kServer, kSectionBytes[1]}};
  Blob blob(StateBytes(sections));
  StateWriter writer(StateKind::kGlobal, sections, blob.data());
  std::memset(writer.section(SectionTag::kIdentity).data(), 0x11, kSectionBytes[0]);
  std::memset(writer.section(SectionTag::kServer).data(), 0x22, kSectionBytes[1]);
  writer.Seal();
  return blob;
}

Code CodeOf(const Blob& blob) { return StateReader::Open(blob).status().code(); }

template <typename T>
void Put(Blob* blob, size_t offset, T value) {
  std::memcpy(blob->data() + offset, &value, sizeof(value));
}
// Corrects the header's checksum after a change.
void FixHeader(Blob* blob) {
  uint32_t header_bytes;
  std::memcpy(&header_bytes, blob->data() + kAtHeaderBytes, sizeof(header_bytes));
  const std::span<const std::byte> header = std::span(*blob).first(header_bytes);
  Put(blob, kAtCheck, DigestOf(header.subspan(kAtCheck + 8), DigestOf(header.first(kAtCheck), 0)));
}

TEST(StateBlobTest, SectionsAreReadAsWritten) {
  const Blob blob = SmallBlob();
  const auto reader = StateReader::Open(blob);
  ASSERT_TRUE(reader.ok()) << reader.status().text();
  EXPECT_EQ(reader.value().kind(), StateKind::kGlobal);
  EXPECT_EQ(reader.value().section_count(), kSections);
  const auto first = reader.value().section(SectionTag::kIdentity);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(Blob(first->begin(), first->end()), Blob(kSectionBytes[0], std::byte{0x11}));
  const auto second = reader.value().section(SectionTag::kServer);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(Blob(second->begin(), second->end()), Blob(kSectionBytes[1], std::byte{0x22}));
  EXPECT_FALSE(reader.value().section(SectionTag::kWorker).has_value());
}

// The bytes that STATE.md specifies. Changing them requires a new version.
TEST(StateBlobTest, BytesAreThoseOfTheDocument) {
  const StateSection sections[] = {{SectionTag::kWorker, 4}};
  Blob blob(StateBytes(sections), std::byte{0xee});
  StateWriter writer(StateKind::kRank, sections, blob.data());
  const uint32_t content = 0x04030201;
  std::memcpy(writer.section(SectionTag::kWorker).data(), &content, sizeof(content));
  writer.Seal();
  const uint8_t expected[] = {
      '1', 'B', 'I', 'T', 'S', 'T', 'A', 'T',  // magic
      1,   0,   0,   0,   1,   0,   0,   0,    // version, kind
      72,  0,   0,   0,   0,   0,   0,   0,    // total
      64,  0,   0,   0,   1,   0,   0,   0,    // header, sections
      0,   0,   0,   0,   0,   0,   0,   0,    // header check, below
      2,   0,   0,   0,   0,   0,   0,   0,    // tag
      4,   0,   0,   0,   0,   0,   0,   0,    // length
      0,   0,   0,   0,   0,   0,   0,   0,    // section check, below
      1,   2,   3,   4,   0,   0,   0,   0,
  };
  ASSERT_EQ(blob.size(), sizeof(expected));
  uint64_t checks[2];
  std::memcpy(&checks[0], blob.data() + 32, 8);
  std::memcpy(&checks[1], blob.data() + 56, 8);
  EXPECT_EQ(checks[0], 0x3359'f1e9'3069'8181u);
  EXPECT_EQ(checks[1], 0xf7b2'faa9'c1ed'b7ebu);
  Put<uint64_t>(&blob, 32, 0);
  Put<uint64_t>(&blob, 56, 0);
  EXPECT_EQ(std::memcmp(blob.data(), expected, sizeof(expected)), 0);
}

TEST(StateBlobTest, EveryFlippedBitIsFound) {
  const Blob good = SmallBlob();
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    Blob blob = good;
    blob[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(CodeOf(blob), Code::kOk) << "bit " << bit;
    EXPECT_EQ(CodeOf(blob), bit / 8 < 8 ? Code::kInvalidArgument : Code::kCorrupt) << "bit " << bit;
  }
}

TEST(StateBlobTest, EveryPrefixAndEveryExtensionIsRefused) {
  const Blob good = SmallBlob();
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(CodeOf(Blob(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size))),
              Code::kCorrupt)
        << size << " bytes";
  }
  for (const size_t more : {1, 8, 100}) {
    Blob blob = good;
    for (size_t i = 0; i < more; ++i) blob.push_back(std::byte{0});
    EXPECT_EQ(CodeOf(blob), Code::kCorrupt) << more << " bytes more";
  }
}

TEST(StateBlobTest, OtherBytesAreToldFromDamage) {
  EXPECT_EQ(CodeOf(Blob(500, std::byte{7})), Code::kInvalidArgument);
  Blob blob = SmallBlob();
  blob[0] = std::byte{'2'};
  FixHeader(&blob);
  EXPECT_EQ(CodeOf(blob), Code::kInvalidArgument);
}

TEST(StateBlobTest, LaterVersionSaysSo) {
  Blob blob = SmallBlob();
  Put<uint32_t>(&blob, kAtVersion, 2);
  FixHeader(&blob);
  const Status status = StateReader::Open(blob).status();
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_NE(status.text().find("version 2, this library reads 1"), std::string::npos);
}

// The checksums are valid, so the reader must check the members themselves.
TEST(StateBlobTest, LengthsAreNotTrusted) {
  const auto expect_corrupt = [](size_t offset, auto value) {
    Blob blob = SmallBlob();
    Put(&blob, offset, value);
    FixHeader(&blob);
    EXPECT_EQ(CodeOf(blob), Code::kCorrupt) << "offset " << offset << ", value " << value;
  };
  const size_t size = SmallBlob().size();
  for (const uint64_t total : {uint64_t{0}, uint64_t{size - 8}, uint64_t{size + 8}, UINT64_MAX}) {
    expect_corrupt(kAtTotal, total);
  }
  for (const uint64_t length : {uint64_t{17}, uint64_t{29}, UINT64_MAX, UINT64_MAX - 7}) {
    expect_corrupt(kAtFirstLength, length);
  }
  expect_corrupt(kAtFirstLength, uint64_t{0});  // bytes are left over, and the checksum is another
  for (const uint32_t count : {0u, 1u, 3u, 9u, UINT32_MAX}) expect_corrupt(kAtSectionCount, count);
  expect_corrupt(kAtKind, uint32_t{0});
  expect_corrupt(kAtKind, uint32_t{77});
  expect_corrupt(kAtKind, static_cast<uint32_t>(StateKind::kOptimizerGlobal) + 1);
  expect_corrupt(kAtFirstRow, uint32_t{3});  // not below the next tag
  for (const uint32_t header : {0u, 39u, UINT32_MAX}) {
    Blob blob = SmallBlob();
    Put(&blob, kAtHeaderBytes, header);
    EXPECT_EQ(CodeOf(blob), Code::kCorrupt) << "header of " << header;
  }
}

// One more section would be written beyond the reader's table.
TEST(StateBlobTest, MoreSectionsThanThereCanBeAreRefused) {
  std::vector<StateSection> sections;
  for (uint32_t tag = 1; tag <= 40; ++tag) {
    sections.push_back({static_cast<SectionTag>(tag), 8});
    Blob blob(StateBytes(sections));
    StateWriter writer(StateKind::kRank, sections, blob.data());
    for (const StateSection& section : sections) writer.section(section.tag)[0] = std::byte{1};
    writer.Seal();
    EXPECT_EQ(CodeOf(blob), tag <= 8 ? Code::kOk : Code::kCorrupt) << tag;
  }
}

TEST(StateBlobTest, OneSectionTwiceIsRefused) {
  const StateSection twins[] = {{SectionTag::kWorker, 8}, {SectionTag::kWorker, 8}};
  Blob blob(StateBytes(twins));
  StateWriter writer(StateKind::kRank, twins, blob.data());
  writer.Seal();
  EXPECT_EQ(CodeOf(blob), Code::kCorrupt);
}

TEST(DigestTest, LengthAndSeedCount) {
  const Blob zeros(64);
  const std::span<const std::byte> bytes(zeros);
  for (size_t size = 1; size <= bytes.size(); ++size) {
    EXPECT_NE(DigestOf(bytes.first(size), 1), DigestOf(bytes.first(size - 1), 1)) << size;
  }
  EXPECT_NE(DigestOf(bytes, 1), DigestOf(bytes, 2));
}

// The checksum of packets, which is made of sums, would not notice these changes.
TEST(DigestTest, TwoSignsAndTwoExchangedWordsAreFound) {
  Blob blob(256);
  for (size_t i = 0; i < blob.size(); ++i) blob[i] = static_cast<std::byte>(i);
  const uint64_t before = DigestOf(blob, 0);
  Blob signs = blob;
  signs[3] ^= std::byte{0x80};
  signs[3 + 64] ^= std::byte{0x80};
  EXPECT_NE(DigestOf(signs, 0), before);
  Blob exchanged = blob;
  std::swap_ranges(exchanged.begin(), exchanged.begin() + 8, exchanged.begin() + 16);
  EXPECT_NE(DigestOf(exchanged, 0), before);
}

StateIdentity SomeIdentity() {
  StateIdentity identity;
  identity.count = 1'000'001;
  identity.epoch = 77;
  identity.commits_since_zero = 5;
  identity.codec = {.kind = CodecKind::kEf, .rule = kernels::ScaleRule::kL1, .block = 4096};
  identity.ranks = 7;
  identity.rank = 3;
  identity.chunk_alignment = 64;
  identity.type = kernels::DataType::kF16;
  identity.residual_type = kernels::DataType::kBf16;
  identity.has_server_residual = true;
  identity.op = ReduceOp::kAvg;
  return identity;
}

TEST(StateIdentityTest, IsReadAsWritten) {
  const StateIdentity identity = SomeIdentity();
  const auto read = DecodeIdentity(EncodeIdentity(identity));
  ASSERT_TRUE(read.ok()) << read.status().text();
  EXPECT_EQ(DescribeDifferenceOfRank(read.value(), identity), "");
  EXPECT_EQ(read.value().epoch, 77u);
  EXPECT_EQ(read.value().commits_since_zero, 5u);
  EXPECT_EQ(read.value().op, ReduceOp::kAvg);
  StateIdentity unused;
  EXPECT_FALSE(DecodeIdentity(EncodeIdentity(unused)).value().op.has_value());
}

TEST(StateIdentityTest, BytesAreThoseOfTheDocument) {
  const uint8_t expected[] = {
      0x41, 0x42, 0x0f, 0, 0,  0, 0, 0,  // count
      77,   0,    0,    0, 0,  0, 0, 0,  // epoch
      5,    0,    0,    0, 0,  0, 0, 0,  // age
      0,    16,   0,    0, 7,  0, 0, 0,  // block, ranks
      3,    0,    0,    0, 64, 0, 2, 2,  // rank, chunk alignment, collective, mode
      1,    1,    2,    1, 4,  0, 0, 0,  // type, rule, residual type, flags, op
  };
  const auto bytes = EncodeIdentity(SomeIdentity());
  ASSERT_EQ(bytes.size(), sizeof(expected));
  EXPECT_EQ(std::memcmp(bytes.data(), expected, sizeof(expected)), 0);
  StateIdentity other;
  other.codec.kind = CodecKind::kSign;
  other.is_one_exchange = true;
  auto other_bytes = EncodeIdentity(other);
  EXPECT_EQ(other_bytes[39], std::byte{1});
  EXPECT_EQ(other_bytes[43], std::byte{2});
  EXPECT_EQ(other_bytes[44], std::byte{255});
}

StateIdentity SparseIdentity() {
  StateIdentity identity = SomeIdentity();
  identity.codec = {
      .kind = CodecKind::kSparseEf, .sparse = {.k = 64, .is_random = true}, .block = 4096};
  identity.seed = 0x0102'0304'0506'0708;
  identity.ef_decay = 0.75f;
  return identity;
}

TEST(StateIdentityTest, ThatOfASparseCodecHasMoreMembers) {
  const StateIdentity identity = SparseIdentity();
  auto bytes = EncodeIdentity(identity);
  ASSERT_EQ(bytes.size(), 64u);
  EXPECT_EQ(bytes[25], std::byte{16});  // block 4096
  EXPECT_EQ(bytes[26], std::byte{64});  // k
  EXPECT_EQ(bytes[39], std::byte{6});
  EXPECT_EQ(bytes[41], std::byte{0x0b});
  EXPECT_EQ(bytes[48], std::byte{8});
  EXPECT_EQ(bytes[59], std::byte{0x3f});
  const auto read = DecodeIdentity(bytes);
  ASSERT_TRUE(read.ok()) << read.status().text();
  EXPECT_EQ(DescribeDifferenceOfRank(read.value(), identity), "");
  EXPECT_EQ(read.value().seed, identity.seed);
  for (const size_t offset : {24, 27, 41, 59, 60, 63}) {
    auto damaged = bytes;
    damaged[offset] = std::byte{0x77};
    EXPECT_EQ(DecodeIdentity(damaged).status().code(), Code::kCorrupt) << "offset " << offset;
  }
  EXPECT_FALSE(DecodeIdentity(std::span<const std::byte>(bytes).first(48)).ok());
  StateIdentity here = identity;
  here.codec.sparse = {.k = 5, .values = kernels::SparseValues::kF32, .is_random = true};
  here.seed = 1;
  here.ef_decay = 1;
  EXPECT_EQ(DescribeDifferenceOfRank(identity, here),
            "k 64 in the state, 5 here; values two magnitudes in the state, fp32 here; "
            "efDecay 0.75 in the state, 1 here; seed 72623859790382856 in the state, 1 here");
  EXPECT_EQ(DescribeDifferenceOfTensor(identity, here), "");
}

TEST(StateIdentityTest, WhatMakesNoSenseIsRefused) {
  const auto good = EncodeIdentity(SomeIdentity());
  EXPECT_FALSE(DecodeIdentity(std::span<const std::byte>(good).first(47)).ok());
  for (const size_t offset : {32, 38, 39, 40, 41, 42, 43, 44}) {
    auto bytes = good;
    bytes[offset] = std::byte{0x77};
    EXPECT_EQ(DecodeIdentity(bytes).status().code(), Code::kCorrupt) << "offset " << offset;
  }
}

TEST(StateIdentityTest, SumsOfOneRankAloneHaveHosts) {
  StateIdentity good = SomeIdentity();  // of an allreduce in two exchanges, with seven ranks
  good.hosts = 5;
  EXPECT_TRUE(DecodeIdentity(EncodeIdentity(good)).ok());
  StateIdentity reduce_scatter = good;
  reduce_scatter.collective = Collective::kReduceScatter;
  EXPECT_TRUE(DecodeIdentity(EncodeIdentity(reduce_scatter)).ok());
  StateIdentity all_gather = good;
  all_gather.collective = Collective::kAllGather;
  StateIdentity one_exchange = good;
  one_exchange.is_one_exchange = true;
  StateIdentity two_ranks = good;
  two_ranks.ranks = 2;
  two_ranks.rank = 1;
  for (StateIdentity identity : {all_gather, one_exchange, two_ranks}) {
    SCOPED_TRACE(DescribeDifferenceOfRank(identity, good));
    const Status status = DecodeIdentity(EncodeIdentity(identity)).status();
    EXPECT_EQ(status.code(), Code::kCorrupt);
    EXPECT_NE(status.text().find("hosts"), std::string::npos) << status.text();
    identity.hosts = 0;  // nothing else is wrong with it
    const Status without_hosts = DecodeIdentity(EncodeIdentity(identity)).status();
    EXPECT_TRUE(without_hosts.ok()) << without_hosts.text();
  }
}

TEST(StateIdentityTest, DifferencesAreNamed) {
  const StateIdentity state = SomeIdentity();
  StateIdentity here = state;
  here.ranks = 8;
  here.codec.block = 64;
  here.residual_type = kernels::DataType::kF32;
  EXPECT_EQ(DescribeDifferenceOfTensor(state, here), "");
  EXPECT_EQ(DescribeDifferenceOfRank(state, here),
            "ranks 7 in the state, 8 here; block 4096 in the state, 64 here; "
            "residualType bfloat16 in the state, float32 here");
  here.count = 1;
  EXPECT_EQ(DescribeDifferenceOfTensor(state, here), "elements 1000001 in the state, 1 here");
}

}  // namespace
}  // namespace onebit
