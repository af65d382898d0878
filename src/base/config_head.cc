// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "base/config_head.h"

#include <algorithm>

namespace onebit {

Status CheckConfigHead(std::string_view name, std::string_view initializer, const ConfigHead& given,
                       const ConfigHead& known, std::span<const size_t> former_sizes) {
  constexpr uint32_t kMajor = 10'000;  // weight of the major version in ONEBIT_VERSION_CODE
  if (given.magic != known.magic) {
    return Error(Code::kInvalidArgument,
                 "{}: magic is {:#x}, so it was not initialised: start from {}", name, given.magic,
                 initializer);
  }
  const bool is_known_size =
      given.size == known.size || std::ranges::find(former_sizes, given.size) != former_sizes.end();
  if (!is_known_size || given.version == 0 || given.version / kMajor > known.version / kMajor) {
    return Error(
        Code::kInvalidArgument,
        "{}: size is {} and version {}, this library knows size {} and version {}: compile "
        "with its header and start from {}",
        name, given.size, given.version, known.size, known.version, initializer);
  }
  return OkStatus();
}

}  // namespace onebit
