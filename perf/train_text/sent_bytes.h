// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What the steps of a run must have sent, by formula, to be held against what was counted.
#pragma once

#include <cstddef>
#include <cstdint>

#include "onebit/onebit.h"
#include "perf/common/wire.h"
#include "perf/train_text/options.h"

namespace onebit::train {

/** Allreduces of all parameters, each by all ranks. */
struct SentCalls {
  uint64_t dense = 0;  // of gradients in their type
  uint64_t compressed = 0;
  uint64_t messages = 0;  // of all of them, by one rank
};

/** Packets of a compressed call of `count` elements, as the library would cut them. Local, but like
 * any compressor's creation to be made by all ranks. Throws OnebitError. */
perf::WireShape CompressedShape(const TrainOptions& options, onebitComm_t comm, size_t count);

/** Bytes that rank 0 sends in `calls`. Into how many messages dense calls were cut follows from the
 * number of messages; the rest is arithmetic. */
uint64_t ExpectedBytes(const TrainOptions& options, const perf::WireShape& compressed,
                       const SentCalls& calls);

}  // namespace onebit::train
