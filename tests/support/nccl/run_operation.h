// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// RunOperation: runs an Operation on a stream.
#pragma once

namespace onebit::testing::nccl {

// `data` is an Operation. Waits for peers, and returns early if the communicator ends.
void RunOperation(void* data);

}  // namespace onebit::testing::nccl
