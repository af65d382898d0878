// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Options of a group are compared when its communicators are made.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/comm.h"
#include "transport/transport.h"

namespace onebit {
namespace {

const CommOptions kOptions{
    .timeout_ms = 20'000, .one_exchange_elements = 100, .segment_elements = 640};

class CommOptionsTest : public ::testing::Test {
 protected:
  Status Create(const std::vector<CommOptions>& options_by_rank) {
    return Comm::CreateLocalGroup(*Transport::Get("local").value(), options_by_rank).status();
  }
  void ExpectMismatch(const std::vector<CommOptions>& options_by_rank, const std::string& text) {
    const Status status = Create(options_by_rank);
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_EQ(status.text(), text + "; set it to the same value on all ranks");
  }
};

TEST_F(CommOptionsTest, EqualOnesAreTaken) {
  EXPECT_TRUE(Create({kOptions}).ok());
  EXPECT_TRUE(Create({kOptions, kOptions, kOptions}).ok());
}

TEST_F(CommOptionsTest, TimeOutMayDiffer) {
  CommOptions hasty = kOptions;
  hasty.timeout_ms = 1'000;
  EXPECT_TRUE(Create({kOptions, hasty, kOptions}).ok());
}

TEST_F(CommOptionsTest, ExchangeLimitsThatDifferAreNamedWithBothRanks) {
  CommOptions odd = kOptions;
  odd.one_exchange_elements = 0;
  ExpectMismatch(
      {kOptions, kOptions, odd},
      "ONEBIT_ONE_EXCHANGE_ELEMENTS differs between ranks: rank 0 has 100, rank 2 has 0");
}

TEST_F(CommOptionsTest, SegmentLengthsThatDifferAreNamedWithBothRanks) {
  CommOptions odd = kOptions;
  odd.segment_elements = 64;
  ExpectMismatch({kOptions, odd},
                 "ONEBIT_SEGMENT_ELEMENTS differs between ranks: rank 0 has 640, rank 1 has 64");
  ExpectMismatch({odd, kOptions, odd},
                 "ONEBIT_SEGMENT_ELEMENTS differs between ranks: rank 0 has 64, rank 1 has 640");
}

TEST_F(CommOptionsTest, GroupLimitsThatDifferAreNamedWithBothRanks) {
  CommOptions odd = kOptions;
  odd.group_elements = 0;
  ExpectMismatch({kOptions, odd},
                 "ONEBIT_GROUP_ELEMENTS differs between ranks: rank 0 has 262144, rank 1 has 0");
}

TEST_F(CommOptionsTest, HostsThatAreToldApartInTwoWaysAreNamedWithBothRanks) {
  CommOptions odd = kOptions;
  odd.host_ranks = 4;
  ExpectMismatch({kOptions, odd},
                 "ONEBIT_HOST_RANKS differs between ranks: rank 0 has 0, rank 1 has 4");
  odd.host_ranks = 0;
  odd.host = "a";
  const Status status = Create({kOptions, kOptions, odd});
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_EQ(status.text(),
            "ONEBIT_HOST differs between ranks: rank 0 has none, rank 2 has \"a\"; set it on all "
            "ranks, to the same word on those of one host, or on none");
}

TEST_F(CommOptionsTest, WordsOfHostsMayDiffer) {
  CommOptions here = kOptions;
  CommOptions there = kOptions;
  here.host = "here";
  there.host = "there";
  EXPECT_TRUE(Create({here, there, here}).ok());
}

}  // namespace
}  // namespace onebit
