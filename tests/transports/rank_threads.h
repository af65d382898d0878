// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of this process, for conformance checks.
#pragma once

#include <functional>
#include <string>

#include "tests/transports/conformance.h"

namespace onebit::conformance {

// Runs `body` on `nranks` threads, as Subject::run_ranks asks for. Returns the first failure, and
// leaves out the failures of other ranks that follow from it.
std::string RunRankThreads(int nranks, const std::function<void(OutOfBand&)>& body);

}  // namespace onebit::conformance
