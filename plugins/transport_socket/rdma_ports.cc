// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/transport_socket/rdma_ports.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

namespace onebit::sockets {
namespace {

// In the order of their names. A folder that is missing or cannot be read has none.
std::vector<std::filesystem::path> EntriesOf(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> entries;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    entries.push_back(at->path());
  }
  std::ranges::sort(entries);
  return entries;
}

}  // namespace

std::string ActiveRdmaPort(const std::string& folder) {
  for (const auto& device : EntriesOf(folder)) {
    for (const auto& port : EntriesOf(device / "ports")) {
      std::string state;  // "4: ACTIVE"
      std::getline(std::ifstream(port / "state"), state);
      if (state.find("ACTIVE") != std::string::npos) {
        return device.filename().string() + " port " + port.filename().string();
      }
    }
  }
  return "";
}

}  // namespace onebit::sockets
