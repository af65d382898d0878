// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Chunks and segments: every element belongs to exactly one, and boundaries are where blocks allow.
#include "plan/partition.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace onebit {
namespace {

constexpr size_t kCounts[] = {0,   1,   7,   8,    9,    63,   64,    65,     127,
                              128, 511, 513, 1000, 4096, 4097, 65536, 100'003};

// Calls `check(partition, count, ranks, alignment, block, segment_elements)` for a grid of values.
template <typename Check>
void ForEachPartition(Check check) {
  for (const size_t count : kCounts) {
    for (size_t ranks = 1; ranks <= 9; ++ranks) {
      for (const size_t alignment : {8, 64, 1000}) {
        for (const size_t block : {64, 128, 4096}) {
          for (const size_t segment_elements : {0, 64, 100, 1000, 262'144}) {
            SCOPED_TRACE(::testing::Message()
                         << count << " elements, " << ranks << " ranks, alignment " << alignment
                         << ", block " << block << ", segments of " << segment_elements);
            const Partition partition(count, ranks, alignment, block, segment_elements);
            check(partition, count, ranks, alignment, block, segment_elements);
            if (::testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST(PartitionTest, ChunksCoverAllElementsInOrder) {
  ForEachPartition(
      [](const Partition& partition, size_t count, size_t ranks, size_t, size_t, size_t) {
        size_t next = 0;
        for (size_t chunk = 0; chunk < ranks; ++chunk) {
          EXPECT_EQ(partition.Chunk(chunk).begin, next);
          next = partition.Chunk(chunk).end();
        }
        EXPECT_EQ(next, count);
      });
}

TEST(PartitionTest, ChunkLengthIsTheSmallestMultipleOfTheAlignment) {
  ForEachPartition(
      [](const Partition& partition, size_t count, size_t ranks, size_t alignment, size_t, size_t) {
        const size_t length = partition.chunk_elements();
        EXPECT_EQ(length % alignment, 0u);
        EXPECT_GE(length * ranks, count);
        if (length != 0) {
          EXPECT_LT((length - alignment) * ranks, count);
        }
      });
}

TEST(PartitionTest, SegmentsCoverTheirChunkInOrder) {
  ForEachPartition([](const Partition& partition, size_t, size_t ranks, size_t, size_t, size_t) {
    for (size_t chunk = 0; chunk < ranks; ++chunk) {
      size_t next = partition.Chunk(chunk).begin;
      for (size_t segment = 0; segment < partition.segments(); ++segment) {
        EXPECT_EQ(partition.Segment(chunk, segment).begin, next);
        next = partition.Segment(chunk, segment).end();
      }
      EXPECT_EQ(next, partition.Chunk(chunk).end());
    }
  });
}

// A block across segments would have its elements in two packets.
TEST(PartitionTest, SegmentsBeginAtBlocksOfTheirChunk) {
  ForEachPartition(
      [](const Partition& partition, size_t, size_t ranks, size_t, size_t block, size_t) {
        for (size_t chunk = 0; chunk < ranks; ++chunk) {
          for (size_t segment = 0; segment < partition.segments(); ++segment) {
            const ElementRange range = partition.Segment(chunk, segment);
            if (range.count == 0) continue;
            EXPECT_EQ((range.begin - partition.Chunk(chunk).begin) % block, 0u);
          }
        }
      });
}

// Segments are messages: where they begin must not change a block, and so a value.
TEST(PartitionTest, SegmentsBeginAtBlocksBehindCuts) {
  constexpr size_t kCount = 10'003;
  constexpr size_t kBlock = 64;
  const std::vector<size_t> offsets = {1, 100, 101, 2501, 2600, 7000, 9999};
  const auto cuts = Cuts::Create(offsets, kCount).value();
  for (size_t ranks = 1; ranks <= 5; ++ranks) {
    for (const size_t segment_elements : {0, 64, 100, 1000}) {
      const Partition partition(kCount, ranks, 8, kBlock, segment_elements, cuts.get());
      for (size_t chunk = 0; chunk < ranks; ++chunk) {
        size_t next = partition.Chunk(chunk).begin;
        for (size_t segment = 0; segment < partition.segments(); ++segment) {
          const ElementRange range = partition.Segment(chunk, segment);
          EXPECT_EQ(range.begin, next);
          next = range.end();
          if (range.count == 0) continue;
          const size_t first =
              std::max(partition.Chunk(chunk).begin, cuts->AtOrBefore(range.begin));
          EXPECT_EQ((range.begin - first) % kBlock, 0u) << range.begin;
        }
        EXPECT_EQ(next, partition.Chunk(chunk).end());
      }
    }
  }
}

TEST(PartitionTest, SegmentCountHasALimit) {
  ForEachPartition(
      [](const Partition& partition, size_t, size_t, size_t, size_t, size_t segment_elements) {
        EXPECT_GE(partition.segments(), 1u);
        EXPECT_LE(partition.segments(), Partition::kMaxSegments);
        if (segment_elements == 0) {
          EXPECT_EQ(partition.segments(), 1u);
        }
      });
}

TEST(PartitionTest, LateChunksAreEmptyWhenTheTensorIsShort) {
  const Partition partition(10, 4, 8, 64, 0);
  EXPECT_EQ(partition.Chunk(0).count, 8u);
  EXPECT_EQ(partition.Chunk(1).count, 2u);
  EXPECT_EQ(partition.Chunk(2).count, 0u);
  EXPECT_EQ(partition.Chunk(3).count, 0u);
}

TEST(PartitionTest, SegmentIsAboutAsLongAsAskedFor) {
  // 100000 / 4 = 25000, up to 25024; 25024 / 4096 gives 7 pieces of 3575, up to 3584 = 56 blocks.
  const Partition partition(100'000, 4, 64, 64, 4096);
  EXPECT_EQ(partition.chunk_elements(), 25'024u);
  EXPECT_EQ(partition.segments(), 7u);
  EXPECT_EQ(partition.Segment(0, 0).count, 3584u);
  EXPECT_EQ(partition.Segment(0, 6).count, 25'024u - 6 * 3584u);
}

TEST(PartitionTest, PartsHaveExactlyTheirCount) {
  for (const size_t count : {0, 1, 7, 64, 1000}) {
    for (const size_t ranks : {1, 2, 5}) {
      const Partition partition = Partition::OfChunks(count, ranks, 64, 100);
      EXPECT_EQ(partition.element_count(), count * ranks);
      EXPECT_EQ(partition.segments(), count == 1000 ? 8u : 1u);  // 100 elements, up to 128
      for (size_t chunk = 0; chunk < ranks; ++chunk) {
        EXPECT_EQ(partition.Chunk(chunk).begin, chunk * count);
        EXPECT_EQ(partition.Chunk(chunk).count, count);
        size_t next = chunk * count;
        for (size_t segment = 0; segment < partition.segments(); ++segment) {
          EXPECT_EQ(partition.Segment(chunk, segment).begin, next);
          next = partition.Segment(chunk, segment).end();
        }
        EXPECT_EQ(next, (chunk + 1) * count);
      }
    }
  }
}

}  // namespace
}  // namespace onebit
