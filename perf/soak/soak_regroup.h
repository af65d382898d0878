// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Communicators derived from others.
#pragma once

#include <span>

#include "onebit/onebit.h"

namespace onebit::soak {

// Both are collective over `comm` and throw ToolError. The result is null for color kNoColor.
onebitComm_t Split(onebitComm_t comm, int color, int key);

// Collective over the ranks that are not excluded.
onebitComm_t Shrink(onebitComm_t comm, std::span<const int> excluded);

}  // namespace onebit::soak
