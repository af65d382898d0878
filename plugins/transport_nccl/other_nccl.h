// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// OtherNccl: detects that the application's communicators belong to another NCCL.
#pragma once

#include <string>

#include "plugins/transport_nccl/nccl_api.h"

namespace onebit::nccl {

// Returns an NCCL library that the application uses, if `api` was loaded for onebit alone and so
// cannot be the one. Empty if there is none, or if the process has loaded several itself: a handle
// does not tell which library made it. Throws std::bad_alloc.
std::string OtherNccl(const NcclApi& api);

}  // namespace onebit::nccl
