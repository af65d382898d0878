// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The end of a process in the middle of a collective, as a crash or a lost host would bring it.
#pragma once

#include <thread>

#include "onebit/onebit.h"

namespace onebit::train {

/** Kills this process with SIGKILL. */
[[noreturn]] void Die();

/**
 * A thread that does so as soon as `comm` has sent more than it has now: in the collective that
 * comes next, when some of its messages are out.
 */
std::jthread DieInNextCollective(onebitComm_t comm);

}  // namespace onebit::train
