// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The file of a JSON report.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

namespace onebit::perf {

// Creates a new file for a report: `path`, or if it exists `path`.0, `path`.1, ... It is created at
// the start of a run, so that hours of work are not lost to a wrong path.
class ReportFile {
 public:
  // `flag` is the option that names the path. Throws UsageError.
  explicit ReportFile(const std::string& path, const std::string& flag = "-J");
  const std::string& path() const { return path_; }
  void Write(const nlohmann::ordered_json& report);  // throws ToolError

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace onebit::perf
