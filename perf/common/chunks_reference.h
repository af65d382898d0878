// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Expected results of reduce_scatter_perf, all_gather_perf and alltoall_perf.
#pragma once

#include <memory>

#include "perf/common/collective.h"

namespace onebit::perf {

std::unique_ptr<Reference> MakeReduceScatterReference(const Case& row, const Options& options);
std::unique_ptr<Reference> MakeAllGatherReference(const Case& row, const Options& options);
std::unique_ptr<Reference> MakeAllToAllReference(const Case& row, const Options& options);

}  // namespace onebit::perf
