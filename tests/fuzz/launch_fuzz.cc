// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The launch environment on arbitrary text, one variable a line, and its list of hosts separately.
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "comm/launch_environment.h"
#include "comm/slurm_hostlist.h"

namespace {

void Require(bool claim) {
  if (!claim) std::abort();
}

void CheckLaunch(const onebit::LaunchEnvironment& launch) {
  using Kind = onebit::Rendezvous::Kind;
  Require(launch.ranks >= 1 && launch.ranks <= onebit::kMaxLaunchRanks);
  Require(launch.rank >= 0 && launch.rank < launch.ranks);
  const onebit::Rendezvous& place = launch.rendezvous;
  Require((place.kind == Kind::kNone) == (launch.ranks == 1));
  if (place.kind == Kind::kAddress) Require(!place.host.empty() && place.port != 0);
  // Only the user's own path may lead elsewhere.
  if (place.kind == Kind::kFile && place.source != "ONEBIT_RENDEZVOUS") {
    Require(place.path.substr(place.path.rfind('/') + 1).find('-') != std::string::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::string> lines(1);
  for (size_t i = 0; i < size; ++i) {
    if (data[i] == '\n' || data[i] == '\0') {
      lines.emplace_back();
    } else {
      lines.back() += static_cast<char>(data[i]);
    }
  }
  std::vector<const char*> environment;
  for (const std::string& line : lines) environment.push_back(line.c_str());
  const auto launch =
      onebit::ReadLaunchEnvironment(environment, {.parent_pid = 7, .user_id = 1000});
  if (launch.ok()) {
    CheckLaunch(launch.value());
  } else {
    Require(!launch.status().text().empty());
  }

  const auto host = onebit::FirstSlurmHost({reinterpret_cast<const char*>(data), size});
  if (host.ok()) {
    Require(!host.value().empty());
    Require(host.value().find_first_of("/[],") == std::string::npos);
  }
  return 0;
}
