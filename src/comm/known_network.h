// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The interfaces at which this process waits for other ranks: those that PyTorch and NCCL were
// configured with count before any guess.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "comm/environment_view.h"
#include "comm/interfaces.h"

namespace onebit {

// The first interface that `pattern` selects (ONEBIT_SOCKET_IFNAME). If it is empty: the first that
// GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME names, or the one that leads to MASTER_ADDR, where ranks
// of PyTorch have met, unless that is a loopback address. Variables of others that name nothing on
// this host are passed over. Where nothing tells: all that may be right, the first guess first
// (SelectInterfaces, Likeliest).
Result<std::vector<Interface>> FindInterfaces(std::string_view pattern,
                                              const EnvironmentView& environment);

}  // namespace onebit
