// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The environment parser on arbitrary text: one variable a line.
#include <cstdlib>
#include <string>
#include <vector>

#include "base/settings.h"

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
  const auto settings = onebit::ReadSettings(environment);
  if (!settings.ok() && settings.status().text().empty()) std::abort();
  return 0;
}
