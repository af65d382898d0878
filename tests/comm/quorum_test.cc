// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/quorum.h"

#include <vector>

#include <gtest/gtest.h>

namespace onebit {
namespace {

using Ranks = std::vector<int>;

TEST(QuorumTest, IsMoreThanHalfOrHalfWithTheLowest) {
  EXPECT_TRUE(HasQuorum(4, Ranks{1, 2, 3}, Ranks{}));
  EXPECT_TRUE(HasQuorum(4, Ranks{0, 3}, Ranks{}));
  EXPECT_FALSE(HasQuorum(4, Ranks{1, 2}, Ranks{}));
  EXPECT_FALSE(HasQuorum(4, Ranks{0}, Ranks{}));
  EXPECT_FALSE(HasQuorum(5, Ranks{0, 1}, Ranks{}));
  EXPECT_TRUE(HasQuorum(2, Ranks{0}, Ranks{}));
  EXPECT_FALSE(HasQuorum(2, Ranks{1}, Ranks{}));
}

TEST(QuorumTest, TheDeadDoNotCount) {
  EXPECT_TRUE(HasQuorum(2, Ranks{1}, Ranks{0}));
  EXPECT_TRUE(HasQuorum(4, Ranks{2, 3}, Ranks{0}));
  EXPECT_TRUE(HasQuorum(4, Ranks{2}, Ranks{0, 1}));
  EXPECT_FALSE(HasQuorum(4, Ranks{3}, Ranks{0, 1}));
  EXPECT_TRUE(HasQuorum(3, Ranks{2}, Ranks{0, 1}));
}

// The bits of `set`.
Ranks RanksOf(unsigned set) {
  Ranks ranks;
  for (int rank = 0; set >> rank != 0; ++rank) {
    if ((set >> rank & 1) != 0) ranks.push_back(rank);
  }
  return ranks;
}

// Whoever is dead, however the others come apart, and whatever each side knows of the dead.
TEST(QuorumTest, TwoGroupsNeverBothHaveOne) {
  int groups_with_quorum = 0;
  for (int ranks = 1; ranks <= 5; ++ranks) {
    const unsigned all = (1u << ranks) - 1;
    for (unsigned dead = 0; dead <= all; ++dead) {
      for (unsigned one = 0; one <= all; ++one) {
        for (unsigned other = 0; other <= all; ++other) {
          if (one == 0 || other == 0 || (one & other) != 0 || ((one | other) & dead) != 0) continue;
          for (unsigned known = 0; known <= all; ++known) {
            if ((known & ~dead) != 0 || !HasQuorum(ranks, RanksOf(one), RanksOf(known))) continue;
            ++groups_with_quorum;
            for (unsigned known_there = 0; known_there <= all; ++known_there) {
              if ((known_there & ~dead) != 0) continue;
              EXPECT_FALSE(HasQuorum(ranks, RanksOf(other), RanksOf(known_there)))
                  << ranks << " ranks, dead " << dead << ", met " << one << " and " << other;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(groups_with_quorum, 100);
}

}  // namespace
}  // namespace onebit
