// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Describes how a state differs from the object that is to load it.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/format.h"

namespace onebit {

// Collects differences: "count 100 in the state, 200 here; ...".
class Differences {
 public:
  template <typename T>
  Differences& Compare(std::string_view name, const T& state, const T& here) {
    if (state == here) return *this;
    if (!text_.empty()) text_.append("; ");
    AppendFormat(&text_, "{} {} in the state, {} here", name, state, here);
    return *this;
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace onebit
