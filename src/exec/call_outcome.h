// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// CallOutcome: the end of a call as an optimizer sees it.
#pragma once

#include <cstdint>

namespace onebit {

// A compressor commits its new residuals only if all values were finite.
enum class CallOutcome : uint8_t {
  kNotBegun,
  kFailed,
  kNonfinite,
  kFinite,
  kOnStream,  // it was enqueued: only the device will know
};

}  // namespace onebit
