// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ranks of the examples: threads of this process. In a job each would be a process that calls
// onebitCommInitEnv.
#pragma once

#include <functional>

#include "onebit/onebit.hpp"

namespace onebit::examples {

// Throws std::runtime_error with the library's text if a call failed.
void Check(onebitResult_t result);

// Calls `body(comm, rank)` for every rank on a thread of its own. If one of them throws, the others
// return as well, and this function throws what came first.
void RunRanks(int ranks, const std::function<void(onebitComm_t comm, int rank)>& body);

// A plain or error-feedback compressor of a short fp32 vector with a sparse codec that sends
// `kept` of its elements as they are.
UniqueCompressor SparseCompressor(onebitComm_t comm, onebitCodec_t codec, onebitMode_t mode,
                                  size_t count, size_t kept, int64_t tensor_id, int hops);

}  // namespace onebit::examples
