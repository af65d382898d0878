// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Failed calls of the library as exceptions.
#pragma once

#include <stdexcept>

#include <fmt/core.h>

#include "onebit/onebit.hpp"

namespace onebit::train {

/** A call of the library failed. */
class OnebitError : public std::runtime_error {
 public:
  /** Call it on the thread of the failed call: its text is kept per thread. */
  OnebitError(onebitResult_t result, const char* call)
      : std::runtime_error(fmt::format("{}: {}", call, onebit::Explain(result))) {}
};

/** Throws OnebitError when `result` is an error of `call`. */
inline void Check(onebitResult_t result, const char* call) {
  if (result != onebitSuccess) throw OnebitError(result, call);
}

}  // namespace onebit::train
