// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs of a packet of signs: they end at cuts and at the ends of chunks, and each begins with a
// scale and a byte of its own.
#include "plan/runs.h"

#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace onebit {
namespace {

constexpr size_t kBlock = 64;

// First element, elements, first scale, first byte.
using Runs = std::vector<std::tuple<size_t, size_t, size_t, size_t>>;

Runs RunsOf(RunWalk& walk, ElementRange elements) {
  Runs runs;
  walk.Over(elements, [&](const PacketRun& run) {
    runs.emplace_back(run.elements.begin, run.elements.count, run.scale, run.byte);
  });
  return runs;
}

TEST(RunsTest, EndAtCuts) {
  const auto cuts = Cuts::Create(std::vector<size_t>{3, 70, 71}, 200).value();
  RunWalk walk(cuts.get(), kBlock);
  EXPECT_EQ(RunsOf(walk, {0, 100}),
            (Runs{{0, 3, 0, 0}, {3, 67, 1, 1}, {70, 1, 3, 10}, {71, 29, 4, 11}}));
  EXPECT_EQ(RunsOf(walk, {100, 100}), (Runs{{100, 100, 5, 15}})) << "the next chunk";
  const PacketShape shape = walk.Shape({.codec = {.kind = CodecKind::kSign, .block = kBlock}});
  EXPECT_EQ(shape.scale_count, 7u);
  EXPECT_EQ(shape.element_count, 8 * 15 + 100u);
}

TEST(RunsTest, AreWholeChunksWithoutCuts) {
  RunWalk walk(nullptr, kBlock);
  EXPECT_EQ(RunsOf(walk, {0, 100}), (Runs{{0, 100, 0, 0}}));
  EXPECT_EQ(RunsOf(walk, {100, 0}), Runs()) << "an empty chunk has no scale";
  EXPECT_EQ(RunsOf(walk, {100, 20}), (Runs{{100, 20, 2, 13}}));
}

}  // namespace
}  // namespace onebit
