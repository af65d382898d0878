// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The hub of this process: ranks of other processes join its cliques.
#pragma once

#include <string>

namespace onebit::testing::nccl {

// The name under which other processes reach the hub, which it starts. Empty if it cannot listen:
// then all ranks must be in this process.
//
// At its end the process waits for guests, which may still wait for a result: at most 10 seconds, 1
// if it has not ended its own communicators.
const std::string& HubName();

}  // namespace onebit::testing::nccl
