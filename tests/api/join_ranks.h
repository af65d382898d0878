// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ranks that join through a unique id as processes do, but are threads of this one: transport
// `local`.
#pragma once

#include <functional>
#include <vector>

#include "onebit/onebit.h"
#include "onebit/onebit.hpp"
#include "tests/support/comm_group.h"

namespace onebit::testing {

// A configuration for joins that should succeed.
onebitConfig_t LocalConfig();

// Throws on an error.
onebitUniqueId NewUniqueId();

// One rank's call.
struct JoinCall {
  int rank = 0;
  int nranks = 1;
  onebitConfig_t config = LocalConfig();
};
struct Joined {
  Outcome outcome;
  UniqueComm comm;  // null after an error
};

// Makes all calls at once, each on its own thread. Returns their results in the same order.
std::vector<Joined> JoinRanks(const onebitUniqueId& id, const std::vector<JoinCall>& calls);

// Creates all ranks of a group of n with `config`; throws unless all join.
std::vector<UniqueComm> JoinGroup(int n, const onebitConfig_t& config = LocalConfig());

// Calls `call` for every communicator that is not null, each on its own thread.
std::vector<Outcome> CallAll(const std::vector<UniqueComm>& comms,
                             const std::function<onebitResult_t(onebitComm_t)>& call);

}  // namespace onebit::testing
