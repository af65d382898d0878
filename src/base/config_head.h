// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The members that every configuration structure of the C API begins with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"

namespace onebit {

struct ConfigHead {
  size_t size;
  uint32_t magic;
  uint32_t version;
};

// Refuses a structure that was not started from its initialiser, or that comes from a header that
// this library does not know. The error calls it `name` and its macro `initializer`. A structure
// that has grown is accepted in its `former_sizes`, too: the caller then leaves the members behind
// it at their initial values.
Status CheckConfigHead(std::string_view name, std::string_view initializer, const ConfigHead& given,
                       const ConfigHead& known, std::span<const size_t> former_sizes = {});

}  // namespace onebit
