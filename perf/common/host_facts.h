// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Facts about this machine and time, for reports.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace onebit::perf {

std::string HostName();
// Identifies the running kernel, which containers and network namespaces share.
std::string MachineId();

// Process, host and device of a rank.
struct RankInfo {
  int pid = 0;
  std::string host = {};
  std::optional<uint64_t> host_number = {};  // in the communicator; no value: not known
  std::optional<int> cuda_device = {};       // no value: host memory
  std::string cuda_name = {};
};

std::string ProcessorName();
std::string LocalTime();  // "2025-01-31 23:59:59"

// Returns "NAME=value" of the variables that configure the library. Secrets are left out.
std::vector<std::string> LibraryEnvironment();

}  // namespace onebit::perf
