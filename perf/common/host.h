// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Facts about this machine and moment, for reports.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace onebit::perf {

std::string HostName();

// Where a rank runs.
struct RankPlace {
  int pid = 0;
  std::string host = {};
  std::optional<int> cuda_device = {};  // no value: host memory
  std::string cuda_name = {};
};

std::string ProcessorName();
std::string LocalTime();  // "2025-01-31 23:59:59"

// "NAME=value" of the variables that configure the library, but for what is secret.
std::vector<std::string> LibraryEnvironment();

}  // namespace onebit::perf
