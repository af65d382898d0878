// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Checks of the memory that a call has written.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "onebit/onebit.h"

namespace onebit::soak {

// Returns what is wrong with `got`, or "". Both have `count` elements.
std::string ProblemWithResult(const void* got, const void* expected, size_t count,
                              onebitDataType_t type);

// The content of memory that no call may touch.
inline constexpr std::byte kUntouched{0xa5};

// Returns what is wrong with the memory beside a result, or "".
std::string ProblemWithGuard(std::span<const std::byte> before, std::span<const std::byte> after);

}  // namespace onebit::soak
