// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The table on stdout has nccl-tests' columns and comments.
#include "perf/common/sweep_text.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "perf/common/run_facts.h"

namespace onebit::perf {
namespace {

std::vector<std::string> Words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

Row SomeRow() {
  Row row;
  row.bytes = 1048576;
  row.count = 262144;
  row.out_of_place = {.seconds = 250e-6, .bandwidth = {4.19, 6.29}, .wrong = 0};
  row.in_place = {.seconds = 0.25, .bandwidth = {0.001, 0.002}, .wrong = 3};
  row.wire_bytes = 50000;
  row.ratio = 31.5;
  row.rel_error = 0.78;
  return row;
}

TEST(SweepTextTest, RowsHaveTheColumnsOfNcclTestsFirst) {
  const std::vector<std::string> expected = {
      "1048576", "262144", "float", "sum", "-1",    "250.00", "4.19",    "6.29", "0",
      "250000",  "0.00",   "0.00",  "3",   "50000", "31.50",  "7.8e-01", "N/A"};
  EXPECT_EQ(Words(RowText(SomeRow())), expected);
}

TEST(SweepTextTest, UncheckedIsNotZero) {
  Row row = SomeRow();
  row.out_of_place.wrong.reset();
  EXPECT_EQ(Words(RowText(row))[8], "N/A");
}

TEST(SweepTextTest, WhatWasNotMeasuredIsNotZero) {
  Row row = SomeRow();
  row.in_place = {};
  row.wire_bytes.reset();
  const std::vector<std::string> words = Words(RowText(row));
  ASSERT_EQ(words.size(), 17u);
  for (const size_t column : {9, 10, 11, 12, 13}) EXPECT_EQ(words[column], "N/A") << column;
}

TEST(SweepTextTest, EverythingButRowsIsAComment) {
  const std::vector<RankInfo> infos = {{.pid = 1, .host = "h"}};
  const Options options;  // a temporary makes GCC 12 see uninitialised strings
  std::istringstream lines(HeaderText("tool", options, FactsOfLibrary(options, infos)) +
                           FooterText("tool", 2, 1.5));
  for (std::string line; std::getline(lines, line);) EXPECT_EQ(line.front(), '#') << line;
}

std::string HeaderOn(std::initializer_list<uint64_t> host_of_rank, const Options& options) {
  std::vector<RankInfo> infos;
  for (const uint64_t host : host_of_rank) {
    infos.push_back({.pid = 1, .host = "h", .host_number = host});
  }
  return HeaderText("tool", options, FactsOfLibrary(options, infos));
}

TEST(SweepTextTest, HeaderSaysHowManyRanksAHostHas) {
  const Options options;
  EXPECT_NE(HeaderOn({0, 1, 0, 1, 0, 1}, options).find(" nranks: 6 hosts: 2x3"), std::string::npos);
  EXPECT_NE(HeaderOn({0, 0, 1}, options).find(" nranks: 3 hosts: 2+1"), std::string::npos);
  EXPECT_NE(HeaderOn({0, 0}, options).find(" nranks: 2 hosts: 1x2"), std::string::npos);
  const std::vector<RankInfo> unknown = {{.pid = 1, .host = "h"}};
  EXPECT_EQ(HeaderText("tool", options, FactsOfLibrary(options, unknown)).find("hosts:"),
            std::string::npos);
}

TEST(SweepTextTest, HeaderSaysHowManyLevelsCompressedCallsHave) {
  const auto header = [](int levels, std::initializer_list<uint64_t> hosts) {
    Options options;
    options.mode = Mode::kEf;
    options.levels = levels;
    return HeaderOn(hosts, options);
  };
  EXPECT_NE(header(2, {0, 0, 1}).find(" hosts: 2+1 levels: 2 codec: sign"), std::string::npos);
  EXPECT_NE(header(1, {0, 0, 1}).find(" levels: 1 codec"), std::string::npos);
  EXPECT_NE(header(0, {0, 0, 1}).find(" levels: auto codec"), std::string::npos);
  EXPECT_NE(header(0, {0, 0, 0}).find(" levels: 1 codec"), std::string::npos);
  EXPECT_NE(header(2, {0, 1, 2}).find(" levels: 1 codec"),
            std::string::npos);  // nobody shares a host
  EXPECT_NE(header(2, {0, 0, 0}).find(" levels: 1 codec"), std::string::npos);
}

TEST(SweepTextTest, FooterIsThatOfNcclTests) {
  const std::string passed = FooterText("tool", 0, 1.25);
  EXPECT_NE(passed.find("# Out of bounds values : 0 OK\n"), passed.npos);
  EXPECT_NE(passed.find("# Avg bus bandwidth    : 1.25\n"), passed.npos);
  const std::string failed = FooterText("tool", 7, 1.25);
  EXPECT_NE(failed.find("# Out of bounds values : 7 FAILED\n"), failed.npos);
}

}  // namespace
}  // namespace onebit::perf
