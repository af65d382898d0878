// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Starts a program as the ranks of one job on several hosts, through ssh, and waits until all have
// ended.
#pragma once

#include <string>
#include <vector>

#include "perf/common/rank_launcher.h"
#include "perf/hosts/host_list.h"

namespace onebit::perf {

struct HostsOptions {
  std::vector<HostRanks> hosts;        // ranks are numbered in this order
  std::vector<std::string> variables;  // passed on to the ranks: "NAME", or "NAME=value"
  std::string remote_shell = "ssh";    // a command, words with blanks between them
};

// Like Launch, except that every host needs this program at the path that it has here, and the
// folder of this process. Variables ONEBIT_* and those of `hosts` are passed on to the ranks; the
// others are those of the login there. Unless these variables say otherwise, the ranks meet at the
// address by which ssh reaches the first host, and a secret made for this job, which travels
// through ssh, admits them. A host that is this one needs no ssh, and its ranks have all variables
// of this process.
//
// Throws ToolError or StartError, which name the host, if not all ranks could be started.
int LaunchOnHosts(const LaunchOptions& options, const HostsOptions& hosts);

// The other end: runs the ranks of this host for a LaunchOnHosts that is connected to the standard
// streams. Returns an exit status.
int ServeRanks();

}  // namespace onebit::perf
