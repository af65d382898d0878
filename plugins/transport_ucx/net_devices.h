// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Network devices as UCX knows them.
#pragma once

#include <set>
#include <string>

namespace onebit::ucx {

// Names as in ONEBIT_UCX_NET_DEVICES, e.g. "eth0" or "mlx5_0:1".
std::set<std::string> NetworkDevices();

// Returns a name of `list` that is not among `devices`; empty if all are.
std::string UnknownDevice(const std::string& list, const std::set<std::string>& devices);

// The list to give to UCX when the user has named no devices. It has all RDMA devices, and the
// network interfaces in `interfaces` (a list). If that is empty, it has all interfaces except
// bridges and cables that containers create, which UCX would consider as good as a network between
// hosts.
std::string UsableDevices(const std::string& interfaces, const std::set<std::string>& devices);

// True if `list`, or "all", has one of `devices` that is no network interface.
bool HasAdapter(const std::string& list, const std::set<std::string>& devices);

// True if this host has an RDMA device without hardware, such as the kernel's rxe.
bool HasSoftwareAdapter(const std::string& folder = "/sys/class/infiniband");

}  // namespace onebit::ucx
