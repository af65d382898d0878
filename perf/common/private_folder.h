// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A folder that only this user can enter, removed at the end.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "perf/common/tool_error.h"

namespace onebit::perf {

class PrivateFolder {
 public:
  // Throws ToolError.
  PrivateFolder() {
    const char* parent = std::getenv("TMPDIR");
    path_ = fmt::format("{}/onebit_run-XXXXXX", parent != nullptr ? parent : "/tmp");
    if (mkdtemp(path_.data()) == nullptr) {  // with mode 0700
      throw ToolError(fmt::format("cannot make a folder for the ranks' rendezvous, {}: {}", path_,
                                  ErrnoText()));
    }
  }
  ~PrivateFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace onebit::perf
