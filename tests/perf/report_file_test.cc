// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Files of reports are always new.
#include "perf/common/report_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

using Json = nlohmann::ordered_json;

TEST(ReportFileTest, NeverOverwrites) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "onebit_report_file_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string path = folder / "out.json";
  ReportFile first(path), second(path), third(path);
  EXPECT_EQ(first.path(), path);
  EXPECT_EQ(second.path(), path + ".0");
  EXPECT_EQ(third.path(), path + ".1");
  second.Write({{"a", 1}});
  std::ifstream written(second.path());
  EXPECT_EQ(Json::parse(written), (Json{{"a", 1}}));
  std::filesystem::remove_all(folder);
}

TEST(ReportFileTest, BadPathIsAUsageError) {
  EXPECT_THROW(ReportFile("/nonexistent/folder/out.json"), UsageError);
}

}  // namespace
}  // namespace onebit::perf
