// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Whether what a call has left in memory is what it must be.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "onebit/onebit.h"

namespace onebit::soak {

// What is wrong with `got`, "" if nothing is. Both have `count` elements.
std::string ProblemWithResult(const void* got, const void* expected, size_t count,
                              onebitDataType_t type);

// Memory that no call may touch holds this.
inline constexpr std::byte kUntouched{0xa5};

// Likewise, of memory beside a result.
std::string ProblemWithGuard(std::span<const std::byte> before, std::span<const std::byte> after);

}  // namespace onebit::soak
