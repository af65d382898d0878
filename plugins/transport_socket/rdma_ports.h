// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Tells of network cards that this transport leaves idle.
#pragma once

#include <string>

namespace onebit::sockets {

// The first active port of an InfiniBand or RoCE device, as "mlx5_0 port 1"; empty if there is
// none. `folder` is where the kernel lists the devices.
std::string ActiveRdmaPort(const std::string& folder = "/sys/class/infiniband");

}  // namespace onebit::sockets
