// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Expected results of sendrecv_perf, whose ranks form a ring.
#pragma once

#include <cstdint>
#include <memory>

#include "perf/common/collective.h"

namespace onebit::perf {

inline int RankBefore(const Case& row, int rank) { return (rank + row.ranks - 1) % row.ranks; }

// The id of the compressors, on both sides, of what `sender` sends to the next rank.
inline uint32_t RingTensorId(int sender) { return kModelTensorId + static_cast<uint32_t>(sender); }

std::unique_ptr<Reference> MakeRingReference(const Case& row, const Options& options);

}  // namespace onebit::perf
