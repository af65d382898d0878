// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda/world.h"

#include "tests/support/cuda/capture.h"
#include "tests/support/cuda/stand_in_stream.h"

namespace onebit::testing::cuda {

World& TheWorld() {
  static World* const world = new World;
  return *world;
}

const Block* FindBlock(World& world, const void* address) {
  const auto number = reinterpret_cast<uintptr_t>(address);
  auto after = world.blocks.upper_bound(number);
  if (after == world.blocks.begin()) return nullptr;
  const auto& [begin, block] = *std::prev(after);
  return number - begin < block.bytes ? &block : nullptr;
}

bool IsWithinBlock(World& world, const void* address, size_t bytes) {
  const Block* const first = FindBlock(world, address);
  if (first == nullptr || bytes == 0) return first != nullptr;
  return FindBlock(world, static_cast<const std::byte*>(address) + (bytes - 1)) == first;
}

}  // namespace onebit::testing::cuda
