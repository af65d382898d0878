// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Reports failed calls of the library as exceptions.
#pragma once

#include <stdexcept>

#include <fmt/core.h>

#include "onebit/onebit.hpp"

namespace onebit::train {

/** A call of the library failed. */
class OnebitError : public std::runtime_error {
 public:
  /** Must run on the thread of the failed call, because the library keeps its text per thread. */
  OnebitError(onebitResult_t result, const char* call)
      : std::runtime_error(fmt::format("{}: {}", call, onebit::Explain(result))) {}
};

/** Throws OnebitError if `result` is an error of `call`. */
inline void Check(onebitResult_t result, const char* call) {
  if (result != onebitSuccess) throw OnebitError(result, call);
}

}  // namespace onebit::train
