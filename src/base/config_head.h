// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The members that every configuration structure of the C API begins with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace onebit {

struct ConfigHead {
  size_t size;
  uint32_t magic;
  uint32_t version;
};

// Refuses a structure that was not started from its initialiser, or that comes from a header that
// this library does not know. The error calls it `name` and its macro `initializer`. Each structure
// has had one size so far; when one grows, this function must accept its former sizes.
Status CheckConfigHead(std::string_view name, std::string_view initializer, const ConfigHead& given,
                       const ConfigHead& known);

}  // namespace onebit
