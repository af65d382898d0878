// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// RunDetached: runs a call that may never return, of NCCL or MPI, in a separate thread.
#pragma once

#include <cstdint>
#include <functional>

namespace onebit::plugin {

// Runs `work` in a new thread and waits for it, until the time-out or until `should_stop` is true.
// True if it has returned. False if it goes on; its thread then runs `undo` afterwards. So both
// must own what they use. Throws std::bad_alloc and std::system_error.
bool RunDetached(std::function<void()> work, std::function<void()> undo, uint64_t timeout_ms,
                 const std::function<bool()>& should_stop);

}  // namespace onebit::plugin
