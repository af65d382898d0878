// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ranks as processes of this machine, for conformance checks.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/transports/conformance.h"

namespace onebit::conformance {

// Runs `body` in `nranks` processes, forked from this one, as Subject::run_ranks asks for. Each
// process must start the transport itself, and this one must not have: few libraries survive a
// fork. Returns the first failure. A rank of `may_die` may end as it likes.
std::string RunRankProcesses(int nranks, const std::function<void(OutOfBand&)>& body,
                             const std::vector<int>& may_die = {});

}  // namespace onebit::conformance
