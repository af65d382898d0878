// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The JSON report: nccl-tests' layout and what compression adds.
#include "perf/common/json_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "perf/common/run_facts.h"

namespace onebit::perf {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> KeysOf(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

Json ReportOf(const Row& row, Mode mode = Mode::kEf) {
  Options options;
  options.ranks.threads = 4;
  options.mode = mode;
  options.sweep.step_factor = 2;
  const std::vector<RankInfo> infos(4, {.pid = 1, .host = "h"});
  JsonReport report(FactsOfLibrary(options, infos), {"tool", "-t", "4"});
  report.AddRow(row);
  return std::move(report).Finish(2, 1.5);
}

Row SomeRow() {
  Row row;
  row.bytes = 1024;
  row.count = 256;
  row.iterations = 20;
  row.out_of_place = {.seconds = 0.001, .bandwidth = {1, 2}, .wrong = 2};
  row.wire_bytes = 100;
  row.wire_bytes_bound = 99;
  row.rel_error = 0.5;
  row.speedup_vs_dense = 3.0;
  return row;
}

TEST(JsonReportTest, TopLevelIsThatOfNcclTests) {
  const Json report = ReportOf(SomeRow());
  EXPECT_THAT(KeysOf(report),
              testing::ElementsAre("version", "start_time", "args", "env", "onebit_version",
                                   "config", "results", "out_of_bounds", "average_bus_bandwidth",
                                   "errors", "end_time"));
  EXPECT_EQ(report["version"], 3);
  EXPECT_EQ(report["config"]["nthreads"], 4);
  EXPECT_EQ(report["config"]["step_factor"], 2);
  EXPECT_FALSE(report["config"].contains("step_bytes"));
  EXPECT_EQ(report["config"]["devices"].size(), 4u);
  EXPECT_EQ(report["out_of_bounds"], (Json{{"count", 2}, {"okay", "false"}}));
  EXPECT_EQ(report["average_bus_bandwidth"]["bandwidth"], 1.5);
}

TEST(JsonReportTest, RowsHaveNumbersAndWhatCompressionAdds) {
  const Json row = ReportOf(SomeRow())["results"][0];
  EXPECT_THAT(KeysOf(row), testing::ElementsAre(
                               "size", "count", "type", "redop", "root", "out_of_place", "in_place",
                               "actual_iterations", "untimed_calls", "experiment_name", "mode",
                               "codec", "block", "transport", "device", "nranks", "levels",
                               "wire_bytes", "wire_bytes_bound", "rel_error", "speedup_vs_dense"));
  EXPECT_EQ(row["out_of_place"],
            (Json{{"time", 1000.0}, {"alg_bw", 1.0}, {"bus_bw", 2.0}, {"nwrong", 2}}));
  EXPECT_TRUE(row["in_place"]["nwrong"].is_null());
  EXPECT_EQ(row["mode"], "ef");
  EXPECT_EQ(row["nranks"], 4);
  EXPECT_EQ(row["wire_bytes"], 100);
  EXPECT_EQ(row["wire_bytes_bound"], 99);
  EXPECT_EQ(row["speedup_vs_dense"], 3.0);
}

TEST(JsonReportTest, SaysOnWhichDeviceARankWorks) {
  Options options;
  std::vector<RankInfo> infos = {{.pid = 1, .host = "h"}, {.pid = 2, .host = "h"}};
  JsonReport on_host(FactsOfLibrary(options, infos), {});
  on_host.AddRow(SomeRow());
  const Json host = std::move(on_host).Finish(0, 0);
  EXPECT_EQ(host["results"][0]["device"], "cpu");
  EXPECT_EQ(host["config"]["device"], "cpu");
  EXPECT_TRUE(host["config"]["devices"][1]["device"].is_null());

  options.device.is_cuda = true;
  for (RankInfo& info : infos) {
    info.cuda_device = info.pid + 2;
    info.cuda_name = "A GPU";
  }
  JsonReport on_cuda(FactsOfLibrary(options, infos), {});
  on_cuda.AddRow(SomeRow());
  const Json cuda = std::move(on_cuda).Finish(0, 0);
  EXPECT_EQ(cuda["results"][0]["device"], "cuda");
  EXPECT_EQ(cuda["config"]["device"], "cuda");
  EXPECT_EQ(cuda["config"]["device_name"], "A GPU");
  EXPECT_EQ(cuda["config"]["devices"][1]["device"], 4);
  EXPECT_EQ(cuda["config"]["devices"][1]["device_info"], "A GPU");
}

TEST(JsonReportTest, SaysWhichRanksShareAHost) {
  const Options options;
  const std::vector<RankInfo> infos = {{.pid = 1, .host = "h", .host_number = 0},
                                       {.pid = 2, .host = "h", .host_number = 1},
                                       {.pid = 3, .host = "h", .host_number = 0}};
  JsonReport report(FactsOfLibrary(options, infos), {});
  const Json config = std::move(report).Finish(0, 0)["config"];
  EXPECT_EQ(config["hosts"], (Json{2, 1}));
  EXPECT_EQ(config["devices"][1]["host"], 1);
}

TEST(JsonReportTest, DenseIsAsFastAsItself) {
  Row row = SomeRow();
  row.speedup_vs_dense.reset();
  EXPECT_EQ(ReportOf(row, Mode::kDense)["results"][0]["speedup_vs_dense"], 1.0);
}

TEST(JsonReportTest, WhatWasNotMeasuredIsNull) {
  Row row = SomeRow();
  row.in_place = {};
  row.wire_bytes.reset();
  row.speedup_vs_dense.reset();
  const Json json = ReportOf(row)["results"][0];
  const Json nothing = {
      {"time", nullptr}, {"alg_bw", nullptr}, {"bus_bw", nullptr}, {"nwrong", nullptr}};
  EXPECT_EQ(json["in_place"], nothing);
  EXPECT_TRUE(json["wire_bytes"].is_null());
  EXPECT_TRUE(json["speedup_vs_dense"].is_null());
}

TEST(JsonReportTest, AnErrorIsNeverOkay) {
  const Options options;  // a temporary makes GCC 12 see uninitialised strings
  JsonReport report(FactsOfLibrary(options, {}), {});
  report.AddError("rank 1: gone");
  const Json json = std::move(report).Finish(0, 0);
  EXPECT_EQ(json["out_of_bounds"]["okay"], "false");
  EXPECT_THAT(json["errors"], testing::ElementsAre("rank 1: gone"));
}

}  // namespace
}  // namespace onebit::perf
