// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ends a process in the middle of a call, as a crash or a lost host would.
#pragma once

#include <thread>

namespace onebit::train {

/** Kills this process with SIGKILL. */
[[noreturn]] void Die();

/** Kills this process after a while from another thread, whatever the others are doing then. */
std::jthread DieIn(double seconds);

}  // namespace onebit::train
