// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Checks of the counts and displacements of onebitAllToAllv.
#pragma once

#include "exec/call_request.h"

namespace onebit {

// Fails unless every range lies in memory and is aligned, no sent range overlaps a received one,
// and this rank sends itself as many elements as it receives from itself.
Status CheckPairs(const Comm& comm, const CallRequest& request);

}  // namespace onebit
