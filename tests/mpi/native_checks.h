// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Conformance checks of a transport that has an allreduce of its own.
#pragma once

#include "tests/transports/conformance.h"

namespace onebit::conformance {

std::span<const Check> NativeChecks();

}  // namespace onebit::conformance
