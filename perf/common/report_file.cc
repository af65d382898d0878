// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Keeps an existing file and takes another name.
#include "perf/common/report_file.h"

#include <cerrno>

#include <fmt/format.h>

#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

ReportFile::ReportFile(const std::string& path, const std::string& flag) : path_(path) {
  for (int number = 0;; ++number) {
    file_.reset(std::fopen(path_.c_str(), "wx"));
    if (file_ != nullptr) return;
    if (errno != EEXIST) {
      throw UsageError(fmt::format("{}: cannot create {}: {}", flag, path_, ErrnoText()));
    }
    path_ = fmt::format("{}.{}", path, number);
  }
}

void ReportFile::Write(const Json& report) {
  const std::string text = report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  const bool is_written = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size();
  if (!is_written || std::fflush(file_.get()) != 0) {
    throw ToolError(fmt::format("cannot write {}: {}", path_, ErrnoText()));
  }
}

}  // namespace onebit::perf
