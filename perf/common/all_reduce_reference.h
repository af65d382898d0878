// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The scalar models of allreduce, as the checker of a sweep wants them.
#pragma once

#include <memory>

#include "perf/common/collective.h"

namespace onebit::perf {

std::unique_ptr<Reference> MakeAllReduceReference(const Case& row, const Options& options);

}  // namespace onebit::perf
