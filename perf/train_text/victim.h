// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The end of a process in the middle of a call, as a crash or a lost host would bring it.
#pragma once

#include <thread>

namespace onebit::train {

/** Kills this process with SIGKILL. */
[[noreturn]] void Die();

/** A thread that does so after a while, whatever the others are doing then. */
std::jthread DieIn(double seconds);

}  // namespace onebit::train
