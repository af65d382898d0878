// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Expected results of alltoallv_perf.
#pragma once

#include <memory>

#include "perf/common/collective.h"

namespace onebit::perf {

std::unique_ptr<Reference> MakeAllToAllvReference(const Case& row, const Options& options);

}  // namespace onebit::perf
