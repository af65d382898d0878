// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Communicators out of others.
#pragma once

#include <span>

#include "onebit/onebit.h"

namespace onebit::soak {

// Collective over `comm`; both throw ToolError. Null where `color` is kNoColor.
onebitComm_t Split(onebitComm_t comm, int color, int key);

// Collective over the ranks that are not excluded.
onebitComm_t Shrink(onebitComm_t comm, std::span<const int> excluded);

}  // namespace onebit::soak
