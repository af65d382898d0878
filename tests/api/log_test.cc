// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The log: to a callback, to a file, by level. main.cc sets level INFO and a file for this program.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/format.h"
#include "base/log.h"
#include "onebit/onebit.h"
#include "tests/support/comm_group.h"
#include "tests/support/deadlines.h"

namespace onebit::testing {
namespace {

struct Lines {
  std::mutex mutex;
  std::vector<std::pair<onebitLogLevel_t, std::string>> lines;  // guarded by mutex

  static void Add(onebitLogLevel_t level, const char* text, void* argument) {
    auto* self = static_cast<Lines*>(argument);
    const std::lock_guard lock(self->mutex);
    self->lines.emplace_back(level, text);
  }
  bool Has(onebitLogLevel_t level, const std::string& part) {
    const std::lock_guard lock(mutex);
    for (const auto& [line_level, text] : lines) {
      if (line_level == level && text.find(part) != std::string::npos) return true;
    }
    return false;
  }
};

// The log is set up when the library reads its settings.
class LogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    onebitSetting_t setting = {};
    ASSERT_EQ(onebitGetSetting(0, &setting), onebitSuccess);
  }
};

class LogCallbackTest : public LogTest {
 protected:
  ~LogCallbackTest() override { onebitSetLogCallback(nullptr, nullptr); }
};

TEST_F(LogCallbackTest, TellsTheFirstNonfiniteCallOfATensor) {
  Lines lines;
  CommGroup group(1);
  const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  const UniqueCompressor compressor = NewCompressor(group.comm(0), 1, onebitFloat32, config);
  ASSERT_EQ(onebitSetLogCallback(Lines::Add, &lines), onebitSuccess);
  for (int call = 0; call < 3; ++call) {
    float value = std::numeric_limits<float>::infinity();
    ASSERT_EQ(onebitAllReduce(&value, &value, 1, onebitFloat32, onebitAvg, compressor.get(),
                              group.comm(0), nullptr),
              onebitSuccess);
  }
  EXPECT_TRUE(lines.Has(onebitLogInfo, "tensor 0: a value is not finite"));
  EXPECT_EQ(lines.lines.size(), 1u);
}

TEST_F(LogCallbackTest, WarnsOfAnErrorButNotOfAnAbort) {
  Lines lines;
  CommGroup failing(2, {.timeout_ms = ShortTimeoutMs()});
  CommGroup aborted(2);
  ASSERT_EQ(onebitSetLogCallback(Lines::Add, &lines), onebitSuccess);
  failing.Call([&](int rank) {
    return rank == 0 ? onebitBarrier(failing.comm(0), nullptr) : onebitSuccess;
  });
  ASSERT_EQ(onebitCommAbort(aborted.comm(0)), onebitSuccess);
  EXPECT_TRUE(lines.Has(onebitLogWarn, "ONEBIT_COLLECTIVE_TIMEOUT_MS"));
  EXPECT_TRUE(lines.Has(onebitLogInfo, "onebitCommAbort was called"));
  EXPECT_FALSE(lines.Has(onebitLogWarn, "onebitCommAbort was called"));
}

TEST_F(LogCallbackTest, ReceivesLinesWithTheirLevelAndArgument) {
  Lines lines;
  ASSERT_EQ(onebitSetLogCallback(Lines::Add, &lines), onebitSuccess);
  CommGroup group(2);
  EXPECT_TRUE(lines.Has(onebitLogInfo, "2 ranks, transport local"));
  onebitCommAbort(group.comm(1));
  EXPECT_TRUE(lines.Has(onebitLogInfo, "rank 1: onebitCommAbort was called on this rank"));
}

TEST_F(LogCallbackTest, LevelStillFilters) {
  Lines lines;
  ASSERT_EQ(onebitSetLogCallback(Lines::Add, &lines), onebitSuccess);
  LogLine(LogLevel::kTrace, "a trace");
  LogLine(LogLevel::kInfo, "an info");
  LogLine(LogLevel::kWarn, "a warning");
  EXPECT_FALSE(lines.Has(onebitLogTrace, "a trace"));
  EXPECT_TRUE(lines.Has(onebitLogInfo, "an info"));
  EXPECT_TRUE(lines.Has(onebitLogWarn, "a warning"));
  EXPECT_TRUE(LogEnabled(LogLevel::kInfo));
  EXPECT_FALSE(LogEnabled(LogLevel::kTrace));
}

TEST_F(LogCallbackTest, NewCallbackReplacesTheOldOne) {
  Lines first, second;
  ASSERT_EQ(onebitSetLogCallback(Lines::Add, &first), onebitSuccess);
  ASSERT_EQ(onebitSetLogCallback(Lines::Add, &second), onebitSuccess);
  LogLine(LogLevel::kInfo, "to the second");
  ASSERT_EQ(onebitSetLogCallback(nullptr, nullptr), onebitSuccess);
  LogLine(LogLevel::kInfo, "to the file");
  EXPECT_TRUE(first.lines.empty());
  ASSERT_EQ(second.lines.size(), 1u);
}

// When SetLogCallback returns, the former callback is no longer running, so its argument may be
// freed.
TEST_F(LogCallbackTest, ArgumentMayGoWhenTheCallbackIsReplaced) {
  std::atomic<bool> is_over = false;
  std::vector<std::jthread> writers;
  for (int i = 0; i < 2; ++i) {
    writers.emplace_back([&] {
      while (!is_over) LogLine(LogLevel::kInfo, "a line");
    });
  }
  for (int round = 0; round < 200; ++round) {
    const auto lines = std::make_unique<Lines>();
    ASSERT_EQ(onebitSetLogCallback(Lines::Add, lines.get()), onebitSuccess);
    std::this_thread::yield();
    ASSERT_EQ(onebitSetLogCallback(nullptr, nullptr), onebitSuccess);
  }
  is_over = true;
}

// The file name that the pattern in main.cc expands to.
std::filesystem::path LogFile() {
  char host[256] = "";
  EXPECT_EQ(gethostname(host, sizeof(host) - 1), 0);
  return std::filesystem::path(std::getenv("ONEBIT_DEBUG_FILE")).parent_path() /
         (std::string(host) + "." + std::to_string(getpid()) + ".log");
}

// "host:pid:tid onebit LEVEL text"
bool HasNcclsGrammar(const std::string& line) {
  const size_t begin = line.find(Format(":{}:", getpid()));
  if (begin == std::string::npos || begin == 0) return false;
  std::istringstream words(line.substr(line.find(':', begin + 1) + 1));
  long thread = 0;
  std::string name, level, text;
  words >> thread >> name >> level >> text;
  return thread > 0 && name == "onebit" && !text.empty() &&
         (level == "VERSION" || level == "WARN" || level == "INFO");
}

using LogFileTest = LogTest;

TEST_F(LogFileTest, NameIsExpandedAndLinesHaveHostProcessThreadAndLevel) {
  LogLine(LogLevel::kWarn, "one line for the file");
  std::ifstream file(LogFile());
  ASSERT_TRUE(file.is_open()) << LogFile();
  bool has_line = false;
  for (std::string line; std::getline(file, line);) {
    EXPECT_TRUE(HasNcclsGrammar(line)) << line;
    has_line = has_line || line.ends_with(" onebit WARN one line for the file");
  }
  EXPECT_TRUE(has_line);
}

}  // namespace
}  // namespace onebit::testing
