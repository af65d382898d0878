// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The creation and end of communicators, for functions that make one from another.
#pragma once

#include "tests/support/nccl/stand_in_comm.h"

namespace onebit::testing::nccl {

// Reads what the stand-in heeds of a configuration, and checks it. Null changes nothing.
ncclResult_t ReadConfig(const ncclConfig_t* config, bool* is_blocking);

// Makes the communicator of a rank.
ncclResult_t Init(ncclComm_t* handle, int ranks, const ncclUniqueId& id, int rank,
                  bool was_asked_to_block);

// Operations of an ended communicator return at once. After this none touches memory any more.
void StopOperations(Comm* comm);

}  // namespace onebit::testing::nccl
