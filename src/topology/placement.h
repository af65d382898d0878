// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Where ranks compute: which machine, which of its processors. Ranks tell it each other, to know
// who shares what.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace onebit {

// A bit for each processor (hardware thread) of a machine, lowest number first.
using ProcessorSet = std::vector<uint64_t>;

struct Placement {
  std::string machine;  // equal for processes that share processors, containers included
  ProcessorSet processors;

  uint32_t processor_count() const;
};

// Of the calling thread: what it may run on.
Placement PlacementOfThisThread();

// How many of `all` may run on some processor of `mine`. `mine` is one of them.
size_t RanksSharing(const Placement& mine, std::span<const Placement> all);

}  // namespace onebit
