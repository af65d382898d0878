// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Messages of a group, written by hand after FORMAT.md: correct ones are accepted, and each kind of
// mistake is reported.
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "tests/collectives/scripted_rank.h"

namespace onebit::testing {
namespace {

constexpr size_t kElements = 70;
constexpr uint32_t kBlock = 64;

// Rank 0 of two: a broadcast from rank 1, and a compressed sum in one exchange.
class GroupWireTest : public ::testing::Test {
 protected:
  GroupWireTest() {
    requests_ = {{.collective = Collective::kBroadcast,
                  .recvbuff = received_.data(),
                  .count = received_.size(),
                  .root = 1},
                 {.collective = Collective::kAllReduce,
                  .sendbuff = input_.data(),
                  .recvbuff = sum_.data(),
                  .count = kElements,
                  .compressor = &compressor_}};
    // The payload of the peer: table, three elements, two scales, the signs of 70 elements.
    digests_ = {DigestOf(DescriptorOf(requests_[0], rank_.comm()), 1),
                DigestOf(DescriptorOf(requests_[1], rank_.comm()), 1)};
    Append(digests_);
    Append(std::vector<float>{7, 8, 9});
    Append(std::vector<float>{2, 4});
    Append(std::vector<uint8_t>(9, 0));
  }

  template <typename T>
  void Append(const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    payload_.insert(payload_.end(), bytes.begin(), bytes.end());
  }
  template <typename T>
  void Put(size_t offset, T value) {
    std::memcpy(payload_.data() + offset, &value, sizeof(value));
  }

  Status Run() {
    MessageHeader header;
    header.call.comm_id = rank_.comm().id();
    header.call.collective = Collective::kGroup;
    header.call.count = 2;
    header.call.chunk_alignment = 64;
    header.call.mask_digest = GroupDigest(digests_);
    header.is_nonfinite = is_header_nonfinite_;
    header.has_failed = has_peer_failed_;
    header.has_payload_checksum = true;
    header.payload_checksum.sum = damage_;
    return rank_.Run(requests_, {MessageOf(header, payload_)});
  }
  void ExpectError(Code code, const std::string& text) {
    const Status status = Run();
    EXPECT_EQ(status.code(), code) << status.text();
    EXPECT_NE(status.text().find(text), std::string::npos) << status.text();
  }

  ScriptedRank rank_{{.one_exchange_elements = kElements}};
  PlannedCompressor compressor_ = rank_.NewCompressor(
      {.codec = {.kind = CodecKind::kSign, .block = kBlock}, .count = kElements});
  std::vector<float> received_ = std::vector<float>(3);
  std::vector<float> input_ = std::vector<float>(kElements, 1);
  std::vector<float> sum_ = std::vector<float>(kElements);
  std::vector<CallRequest> requests_;
  std::vector<uint32_t> digests_;
  std::vector<std::byte> payload_;
  bool is_header_nonfinite_ = false;
  bool has_peer_failed_ = false;
  uint32_t damage_ = 0;
};

constexpr size_t kScales = 2 * 4 + 3 * 4;
constexpr size_t kBits = kScales + 2 * 4;

TEST_F(GroupWireTest, PiecesLieOneAfterAnother) {
  const Status status = Run();
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(received_, (std::vector<float>{7, 8, 9}));
  EXPECT_EQ(sum_[0], 1 + 2);
  EXPECT_EQ(sum_[kBlock], 1 + 4);
}

TEST_F(GroupWireTest, TheFlagOfACallIsItsOwn) {
  Put(4, digests_[1] | kGroupNonfinite);
  const Status status = Run();
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(received_, (std::vector<float>{7, 8, 9}));
  EXPECT_TRUE(std::isnan(sum_[0]));
}

TEST_F(GroupWireTest, ADenseCallHasNoFlag) {
  Put(0, digests_[0] | kGroupNonfinite);
  ExpectError(Code::kCorrupt, "call 1 of 2 in the group (broadcast 0 of 3 float32 from rank 1)");
}

TEST_F(GroupWireTest, AnotherCallIsAMismatchWhateverTheHeaderSays) {
  Put(4, digests_[1] ^ 8);
  ExpectError(Code::kMismatch, "rank 1 made a different call 2 of 2 in the group");
}

TEST_F(GroupWireTest, ANegativeScaleIsCorrupt) {
  Put(kScales + 4, -4.0f);
  ExpectError(Code::kCorrupt, "call 2 of 2 in the group (allreduce 0 of 70 float32, sum, sign");
}

TEST_F(GroupWireTest, UnusedBitsAreZero) {
  Put(kBits + 8, uint8_t{0x40});
  ExpectError(Code::kCorrupt, "unused bits");
}

TEST_F(GroupWireTest, TheChecksumCoversThePayload) {
  damage_ = 1;
  ExpectError(Code::kCorrupt, "message of the group from rank 1, exchange 1: payload of 37 bytes");
}

TEST_F(GroupWireTest, ThePayloadHasItsLength) {
  payload_.pop_back();
  ExpectError(Code::kCorrupt, "36 payload bytes");
}

TEST_F(GroupWireTest, TheHeaderHasNoFlag) {
  is_header_nonfinite_ = true;
  ExpectError(Code::kCorrupt, "flags that do not fit a group's call");
}

TEST_F(GroupWireTest, AFailureOfThePeerIsOneHere) {
  has_peer_failed_ = true;
  ExpectError(Code::kRemoteError, "rank 1 failed in group 0 of 2 calls or before it");
}

TEST_F(GroupWireTest, TheFirstCallThatDiffersIsFoundInTheTable) {
  const uint32_t own = digests_[1];
  digests_[1] ^= 16;
  Put(4, digests_[1]);
  ExpectError(Code::kMismatch, "rank 1 made a different call 2 of 2 in the group");
  EXPECT_NE(own, digests_[1]);
}

// If a peer's table cannot be received, its header is reported.
TEST_F(GroupWireTest, WithoutATableTheHeadersAreCompared) {
  digests_[1] ^= 16;
  payload_.resize(4);
  ExpectError(Code::kMismatch, "digest of its calls");
}

}  // namespace
}  // namespace onebit::testing
