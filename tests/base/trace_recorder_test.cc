// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The file of recorded events: complete after each write, and nothing is lost without a word.
#include "base/trace_recorder.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "base/log.h"
#include "base/path_pattern.h"

namespace onebit {
namespace {

std::string NameOfTestRow(uint32_t row) { return "row " + std::to_string(row); }

class TraceFolder {
 public:
  TraceFolder() { std::filesystem::create_directory(path_); }
  ~TraceFolder() { std::filesystem::remove_all(path_); }
  TraceFolder(const TraceFolder&) = delete;
  TraceFolder& operator=(const TraceFolder&) = delete;
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  const std::string path_ =
      ::testing::TempDir() + "trace_recorder_test." + std::to_string(getpid());
};

const TraceFolder& TheFolder() {
  static const TraceFolder folder;
  return folder;
}

// All tests of a process share its file.
std::string TracePath() { return TheFolder().File("trace.json"); }

TraceSource SourceOf(uint32_t comm_id) {
  return {.rank = 3, .comm_id = comm_id, .name_of_row = NameOfTestRow};
}

std::unique_ptr<TraceRecorder> OpenRecorder(uint32_t comm_id) {
  auto recorder = TraceRecorder::Open(TracePath(), SourceOf(comm_id));
  EXPECT_TRUE(recorder.ok()) << recorder.status().text();
  return std::move(recorder).value();
}

TraceEvent EventOf(const char* name, int64_t begin_us, int64_t end_us) {
  TraceEvent event;
  event.name = name;
  event.category = "test";
  event.begin = TraceClock::time_point(std::chrono::microseconds(begin_us));
  event.end = TraceClock::time_point(std::chrono::microseconds(end_us));
  event.call = 7;
  return event;
}

std::string Contents(const std::string& path = TracePath()) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A list with one event per line, as a reader of the whole needs it.
void ExpectComplete(const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  std::vector<std::string> all;
  while (std::getline(lines, line)) all.push_back(line);
  ASSERT_GT(all.size(), 2u);
  EXPECT_EQ(all.front(), "[");
  EXPECT_EQ(all.back(), "]");
  for (size_t i = 1; i + 1 < all.size(); ++i) {
    const std::string end = i + 2 < all.size() ? "}," : "}";
    ASSERT_TRUE(all[i].starts_with("{\"name\":") && all[i].ends_with(end)) << all[i];
  }
}

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// A person who looks at a file sees hosts only where there are several; a program always does.
TEST(TraceRecorderTest, RowsSayOnWhichHostTheRankIs) {
  TraceSource source = SourceOf(0x77);
  source.host = 1;
  source.hosts = 2;
  auto recorder = TraceRecorder::Open(TracePath(), source);
  ASSERT_TRUE(recorder.ok()) << recorder.status().text();
  recorder.value()->Add(EventOf("on a host", 5, 8));
  recorder.value()->Flush();
  auto alone = OpenRecorder(0x78);
  alone->Add(EventOf("on the only host", 5, 8));
  alone->Flush();
  const std::string text = Contents();
  const std::string many =
      R"~("name":"rank 3, host 1: row 0 (00000077)","rank":3,"host":1,"hosts":2,)~";
  const std::string one = R"~("name":"rank 3: row 0 (00000078)","rank":3,"host":0,"hosts":1,)~";
  EXPECT_EQ(CountOf(text, many), 1u);
  EXPECT_EQ(CountOf(text, one), 1u);
}

TEST(TraceRecorderTest, FileIsCompleteBetweenWritesAndAcrossRecorders) {
  auto first = OpenRecorder(0x11);
  ExpectComplete(Contents());  // before any event
  first->Add(EventOf("early", 5, 8));
  first->Flush();
  ExpectComplete(Contents());
  EXPECT_EQ(CountOf(Contents(), "\"early\""), 1u);

  auto second = OpenRecorder(0x12);
  TraceEvent message = EventOf("message", 6, 9);
  message.may_overlap = true;
  message.row = 2;
  message.peer = 1;
  second->Add(message);
  first->Add(EventOf("late", 10, 12));
  second.reset();  // writes what all have
  first.reset();
  auto third = OpenRecorder(0x13);  // goes on where the others ended
  third->Add(EventOf("last", 20, 20));
  third.reset();

  const std::string text = Contents();
  ExpectComplete(text);
  EXPECT_NE(text.find("{\"name\":\"early\",\"ph\":\"X\",\"pid\":1000003,"), text.npos) << text;
  EXPECT_NE(text.find("\"ts\":5.000,\"dur\":3.000,\"args\":{\"call\":7}}"), text.npos) << text;
  EXPECT_EQ(CountOf(text, "\"message\",\"ph\":\"b\""), 1u);
  EXPECT_EQ(CountOf(text, "\"message\",\"ph\":\"e\""), 1u);
  EXPECT_EQ(CountOf(text, "\"name\":\"rank 3: row 2 (00000012)\""), 1u);
  for (const char* name : {"early", "late", "last"}) {
    EXPECT_EQ(CountOf(text, std::string("{\"name\":\"") + name + "\""), 1u) << name;
  }
}

TEST(TraceRecorderTest, TellsHowManyEventsItHasDropped) {
  constexpr uint32_t kComm = 0x21;
  constexpr int kFloods = 2;
  constexpr uint64_t kAdded = 32 * TraceRecorder::kCapacity;  // in each
  uint64_t dropped = 0;
  {
    const auto recorder = OpenRecorder(kComm);
    for (int flood = 0; flood < kFloods; ++flood) {
      for (uint64_t i = 0; i < kAdded; ++i) recorder->Add(EventOf("flood", 1, 2));
      recorder->Flush();
      EXPECT_GT(recorder->dropped(), dropped);
      dropped = recorder->dropped();
    }
  }
  const std::string text = Contents();
  ExpectComplete(text);
  uint64_t told = 0;
  const std::regex count(R"re("events dropped".*"count":(\d+))re");
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (line.find("dropped") != line.npos && std::regex_search(line, match, count)) {
      told += std::stoull(match[1]);
    }
  }
  EXPECT_EQ(told, dropped);
  EXPECT_EQ(CountOf(text, "{\"name\":\"flood\""), kFloods * kAdded - dropped);
}

// Runs `body` in a process of its own, because a process has one file. Returns its text.
template <typename Body>
std::string TextOfChild(const Body& body) {
  int pipe_ends[2];
  EXPECT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = body();
    const ssize_t written = write(pipe_ends[1], text.data(), text.size());
    _exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(pipe_ends[1]);
  std::string text;
  char buffer[256];
  for (ssize_t size; (size = read(pipe_ends[0], buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(size));
  }
  close(pipe_ends[0]);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return text;
}

std::string ErrorOfChild(const std::string& pattern, bool has_other_processes) {
  return TextOfChild([&] {
    TraceSource source = SourceOf(0x31);
    source.has_other_processes = has_other_processes;
    return TraceRecorder::Open(pattern, source).status().text();
  });
}

TEST(TraceRecorderTest, RefusesNamesThatSeveralProcessesWouldWriteTo) {
  const std::string path = TheFolder().File("child");
  EXPECT_EQ(ErrorOfChild(path, true),
            "environment variable ONEBIT_TRACE: ranks of several processes would write \"" + path +
                "\": put %r, the rank, or %p, the process id, into the name");
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(ErrorOfChild(path, false), "");
  EXPECT_EQ(ErrorOfChild(path + "%r", true), "");
  EXPECT_TRUE(std::filesystem::exists(path + "3"));
  EXPECT_EQ(ErrorOfChild(path + "%p", true), "");
}

TEST(TraceRecorderTest, NamesFilesThatCannotBeWritten) {
  EXPECT_EQ(ErrorOfChild("/nonexistent/%r", false),
            "environment variable ONEBIT_TRACE: cannot open the trace file \"/nonexistent/3\": No "
            "such file or directory");
  EXPECT_EQ(ErrorOfChild("/dev/full", false),
            "environment variable ONEBIT_TRACE: cannot write the trace file \"/dev/full\": No "
            "space left on device");
}

TEST(TraceRecorderTest, RefusesAFileThatAnotherProcessWrites) {
  auto recorder = OpenRecorder(0x51);
  EXPECT_EQ(ErrorOfChild(TracePath(), false),
            "environment variable ONEBIT_TRACE: another process writes its trace to \"" +
                TracePath() + "\": put %p, the process id, into the name");
  recorder->Add(EventOf("after the refusal", 1, 2));
  recorder.reset();
  ExpectComplete(Contents());
  EXPECT_EQ(CountOf(Contents(), "after the refusal"), 1u);
  // The end of a process releases its file, and the next one empties it.
  const std::string path = TheFolder().File("one after the other");
  EXPECT_EQ(ErrorOfChild(path, false), "");
  const std::string first = Contents(path);
  EXPECT_EQ(ErrorOfChild(path, false), "");
  EXPECT_EQ(CountOf(Contents(path), "process_name"), 1u);
  EXPECT_NE(Contents(path), first);
}

// The one line that a process logs, from either of its threads.
struct LoggedLine {
  std::string text;
  std::atomic<bool> is_complete{false};
};

TEST(TraceRecorderTest, LeavesACompleteFileWhereThereIsNoMoreRoom) {
  constexpr rlim_t kRoom = 100'000;
  constexpr size_t kAdded = 5000;
  const std::string path = TheFolder().File("too long");
  const std::string logged = TextOfChild([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {.rlim_cur = kRoom, .rlim_max = kRoom};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    LoggedLine line;
    SetLogSink(
        [](LogLevel, const char* text, void* argument) {
          auto* const logged_line = static_cast<LoggedLine*>(argument);
          if (logged_line->is_complete.load()) return;
          logged_line->text = text;
          logged_line->is_complete.store(true);
        },
        &line);
    const auto recorder = TraceRecorder::Open(path, SourceOf(0x61)).value();
    recorder->Add(EventOf("written", 1, 2));
    recorder->Flush();
    for (size_t i = 0; i < kAdded; ++i) recorder->Add(EventOf("in vain", 3, 4));
    recorder->Flush();
    while (!line.is_complete.load()) std::this_thread::yield();
    return line.text;
  });
  EXPECT_NE(logged.find("cannot write the trace file \"" + path +
                        "\": File too large; later events are not recorded"),
            logged.npos)
      << logged;
  const std::string text = Contents(path);
  ExpectComplete(text);
  EXPECT_EQ(CountOf(text, "\"written\""), 1u);
  EXPECT_LT(text.size(), kRoom);
}

// A copy of a process must not write into the file of the original.
TEST(TraceRecorderTest, ForkedProcessLeavesTheFileAlone) {
  auto recorder = OpenRecorder(0x41);
  recorder->Add(EventOf("of the parent", 1, 2));
  const pid_t child = fork();
  if (child == 0) {
    recorder->Add(EventOf("of the child", 3, 4));
    recorder->Flush();
    recorder.reset();
    _exit(0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  recorder.reset();
  const std::string text = Contents();
  ExpectComplete(text);
  EXPECT_EQ(CountOf(text, "of the parent"), 1u);
  EXPECT_EQ(CountOf(text, "of the child"), 0u);
}

TEST(PathPatternTest, ReplacesPlaceholders) {
  const std::string pid = std::to_string(getpid());
  EXPECT_EQ(ExpandPath("a.%r.%p.%h.%%r", 5), "a.5." + pid + "." + HostName() + ".%r");
  EXPECT_EQ(ExpandPath("100%", 5), "100%");
  EXPECT_EQ(ExpandPath("%r"), "r");
  EXPECT_TRUE(HasPlaceholder("a%r", 'r'));
  EXPECT_FALSE(HasPlaceholder("a%%r", 'r'));
  EXPECT_FALSE(HasPlaceholder("a%p", 'r'));
}

}  // namespace
}  // namespace onebit
