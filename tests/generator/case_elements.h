// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// fill_elements.inc for C++.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "onebit/onebit.h"

namespace onebit::testing::generator {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wuseless-cast"
#include "tests/generator/fill_elements.inc"
#pragma GCC diagnostic pop

}  // namespace onebit::testing::generator
