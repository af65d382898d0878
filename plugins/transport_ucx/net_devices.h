// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Network devices as UCX knows them.
#pragma once

#include <set>
#include <string>

namespace onebit::ucx {

// Names as in ONEBIT_UCX_NET_DEVICES, e.g. "eth0" or "mlx5_0:1".
std::set<std::string> NetworkDevices();

// A name of `list` that is not among `devices`; empty if all are.
std::string UnknownDevice(const std::string& list, const std::set<std::string>& devices);

// The list to give to UCX when the user has named no devices: of network interfaces those in
// `interfaces` (a list), or if that is empty all but the bridges and cables that containers bring
// along, which UCX would take for as good as a network between hosts; of other devices (RDMA) all.
std::string UsableDevices(const std::string& interfaces, const std::set<std::string>& devices);

}  // namespace onebit::ucx
