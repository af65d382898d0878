// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// OtherNccl: whether communicators of the application can be of the NCCL that is used here.
#pragma once

#include <string>

#include "plugins/transport_nccl/nccl_api.h"

namespace onebit::nccl {

// A file of NCCL that the application uses, if it cannot be `api`: that was loaded for onebit
// alone. Empty if there is none, and where the process has loaded several by itself: a handle does
// not tell which of them made it. Throws std::bad_alloc.
std::string OtherNccl(const NcclApi& api);

}  // namespace onebit::nccl
