// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// NCCL's functions are C, so no exception may leave those that stand in front of them.
#pragma once

#include <exception>

#include "plugins/nccl_preload/nccl_types.h"
#include "plugins/nccl_preload/preload_log.h"

namespace onebit::preload {

// Runs a body that may lack memory. If it throws, logs that it has failed to do `what`, runs
// `recover` and returns an error.
template <typename Body, typename Recover>
Result WithoutThrowing(const char* what, Body&& body, Recover&& recover) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    Log(LogLevel::kWarn, "failed to %s: %s", what, error.what());
    recover();
    return kSystemError;
  }
}

}  // namespace onebit::preload
