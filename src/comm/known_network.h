// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The interface at which this process waits for other ranks: what PyTorch and NCCL were told about
// the network counts before any guess.
#pragma once

#include <string_view>

#include "base/status.h"
#include "comm/environment_view.h"
#include "comm/interfaces.h"

namespace onebit {

// The first interface that `pattern` selects (ONEBIT_SOCKET_IFNAME). If it is empty: the first that
// GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME names, or the one that leads to MASTER_ADDR, where ranks
// of PyTorch have met, unless that is a loopback address. Otherwise a guess: see SelectInterfaces.
// Variables of others that name nothing on this host are passed over.
Result<Interface> ChooseInterface(std::string_view pattern, const EnvironmentView& environment);

}  // namespace onebit
