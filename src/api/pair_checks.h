// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What onebitAllToAllv checks of its counts and displacements.
#pragma once

#include "collectives/engine.h"

namespace onebit {

// Whether every range lies in memory, is aligned, and none that is sent is received into; and
// whether what this rank sends itself is what it receives of itself.
Status CheckPairs(const Comm& comm, const Engine::Buffers& buffers, const PairCounts& pairs);

}  // namespace onebit
