// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// RunOperation: an Operation as a stream runs it.
#pragma once

namespace onebit::testing::nccl {

// `data` is an Operation. Waits for peers; ends when the communicator does.
void RunOperation(void* data);

}  // namespace onebit::testing::nccl
