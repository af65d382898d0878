// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs operations: on a stream, or at once.
#pragma once

namespace onebit::testing::nccl {

struct Operation;

// `data` is an Operation. Waits for peers, and returns early if the communicator ends.
void RunOperation(void* data);
// Runs an operation that is on no stream. Returns false if the communicator ended first.
bool RunNow(Operation* operation);

}  // namespace onebit::testing::nccl
