// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The machine and processors on which a rank computes. The ranks exchange it in order to know who
// shares what.
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

// The machine and the processors that the calling thread may run on.
Placement PlacementOfThisThread();

// Returns how many of `all`, which include `mine`, may run on some processor of `mine`.
size_t RanksSharing(const Placement& mine, std::span<const Placement> all);

}  // namespace onebit
