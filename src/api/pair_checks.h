// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What onebitAllToAllv checks of its counts and displacements.
#pragma once

#include <vector>

#include "collectives/engine.h"

namespace onebit {

// Whether every range lies in memory, is aligned, and none that is sent is received into; and
// whether what this rank sends itself is what it receives of itself.
Status CheckPairs(const Comm& comm, const Engine::Buffers& buffers, const PairCounts& pairs);

// Copies of the caller's lists, for a call that is made later.
class PairLists {
 public:
  PairLists(const PairCounts& pairs, size_t ranks);
  PairCounts pairs() const;

 private:
  const size_t ranks_;
  std::vector<size_t> numbers_;  // the four lists, one behind the other
};

}  // namespace onebit
