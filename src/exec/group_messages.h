// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Messages of groups: packs pieces of calls into them, unpacks them, and finds the call in which
// ranks differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "steps/batch.h"

namespace onebit {

// Writes the tables of a batch of several calls, which are the heads of its messages. Clears the
// flags, which the pieces of each call set later.
void FillTables(const Batch& batch);

// Copies a piece into its message. The flag of values that are not finite goes into the word of the
// call in the table; the message's own stays clear.
void Pack(const Batch& batch, const Step& step, bool is_nonfinite);
// Copies a piece out of its message, once its form has been checked. Returns the flag of its call.
Result<bool> Unpack(const Batch& batch, const Step& step);

// Checks a message that has arrived: its checksum, and that its calls are this rank's.
Status CheckGroupMessage(const Batch& batch, const Step& receive, kernels::Checksum expected);
// Fails with kMismatch at the first call in a peer's table that differs from this rank's.
Status CompareTable(const Batch& batch, uint32_t peer, std::span<const std::byte> table);

}  // namespace onebit
