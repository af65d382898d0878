// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Variables of an environment given as "NAME=value" texts, as the launch environment reads them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/status.h"

namespace onebit {

// Borrows the texts.
class EnvironmentView {
 public:
  explicit EnvironmentView(std::span<const char* const> environment) : environment_(environment) {}

  // The first variable of this name, as getenv would find it. It may be empty.
  std::optional<std::string_view> Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name).has_value(); }

  // The first of `names` that is set; empty if none is.
  std::string_view FirstSet(std::span<const std::string_view> names) const;

  // Parses the variable, which must be set, as a whole decimal number. The error names it, its
  // value and what is allowed.
  Result<uint64_t> Number(std::string_view name, uint64_t lowest, uint64_t highest) const;

 private:
  std::span<const char* const> environment_;
};

}  // namespace onebit
