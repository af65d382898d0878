// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// RunBeside: a call of NCCL that may never return, in a thread of its own.
#pragma once

#include <cstdint>
#include <functional>

namespace onebit::nccl {

// Runs `work` in a new thread and waits for it, until so long or until `should_stop`. True: it has
// returned. False: it goes on, and `undo` follows it in its thread; so both hold what they use.
// Throws std::bad_alloc and std::system_error.
bool RunBeside(std::function<void()> work, std::function<void()> undo, uint64_t timeout_ms,
               const std::function<bool()>& should_stop);

}  // namespace onebit::nccl
