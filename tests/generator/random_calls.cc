// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Draws random legal configurations of compressors and sequences of calls, makes them on ranks of
// one process, and compares every output with the scalar models, byte for byte. A case that crashes
// or hangs is a finding, too: cases run in a child process, which this one watches.
//
//   random_calls [--seed N] [--seconds N] [--cases N]   look for findings
//   random_calls --seed N --first N --cases 1           one case again
//   random_calls --case 'LINE' [--program]              a case of the report; as a C program
//
// The first finding ends the run with status 1. It is printed as one line, which is made simpler as
// far as it still fails, and as a C program. At the end a table tells how many tensors of each kind
// there were.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/generator/c_program.h"
#include "tests/generator/case.h"
#include "tests/generator/expected.h"
#include "tests/generator/run_case.h"

namespace onebit::testing::generator {
namespace {

using Clock = std::chrono::steady_clock;

// A case takes a fraction of a second. Calls end by themselves after 60 s without progress, so that
// only a thread that is stuck outlasts this.
constexpr auto kLongestCase = std::chrono::seconds(200);
// A simpler case may fail only at a deadline of its calls.
constexpr auto kLongestSimplification = std::chrono::seconds(60);
constexpr auto kPoll = std::chrono::milliseconds(5);
constexpr size_t kMostCells = 1024;
// Ranks wait for each other most of the time, on a busy machine nearly all of it.
constexpr uint64_t kChildren = 4;
constexpr char kHangs[] = "the case hangs";
constexpr int kMostAttempts = 300;  // to make a finding simpler

struct Options {
  uint64_t seed = 1;
  uint64_t first = 0;
  uint64_t cases = 0;  // 0: by time
  double seconds = 20;
  std::string line;
  bool prints_program = false;
};

// What a child process tells this one.
struct Shared {
  std::atomic<uint64_t> case_number;  // number of the case that runs
  std::atomic<uint64_t> calls;
  std::atomic<uint64_t> tensors[kMostCells];
  std::atomic<bool> has_finding;
  int round, rank, tensor;
  size_t byte, expected_bytes;
  std::byte expected[16];
  char text[4096];
};

Shared& NewShared() {
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap failed");
  return *new (memory) Shared();
}

void Report(const Finding& finding, Shared& shared) {
  shared.round = finding.round;
  shared.rank = finding.rank;
  shared.tensor = finding.tensor;
  shared.byte = finding.byte;
  shared.expected_bytes = finding.expected.size();
  std::memcpy(shared.expected, finding.expected.data(), finding.expected.size());
  std::snprintf(shared.text, sizeof(shared.text), "%s", finding.text.c_str());
  shared.has_finding = true;
}

Finding ReportOf(const Shared& shared) {
  Finding finding = {.text = shared.text,
                     .round = shared.round,
                     .rank = shared.rank,
                     .tensor = shared.tensor,
                     .byte = shared.byte};
  finding.expected.assign(shared.expected, shared.expected + shared.expected_bytes);
  return finding;
}

// Runs one case in this process.
bool RunOne(const Case& c, Shared& shared) {
  try {
    if (const auto finding = RunCase(c)) {
      Report(*finding, shared);
      return false;
    }
  } catch (const std::exception& e) {
    Report({.text = e.what()}, shared);
    return false;
  }
  shared.calls += c.calls();
  for (const TensorCase& t : c.tensors) ++shared.tensors[CellOf(c, t)];
  return true;
}

// A process that runs cases. Its finding is one that it reports, a crash, or that it does not begin
// another case in time.
class Child {
 public:
  template <typename Body>
  Child(Shared& shared, const Body& body) : shared_(shared), seen_case_(shared.case_number) {
    shared.has_finding = false;
    std::fflush(stdout);
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("fork failed");
    if (pid_ != 0) return;
    body(shared);
    std::_Exit(0);
  }
  ~Child() { Kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // True if the process has ended.
  bool HasEnded() {
    if (pid_ == 0) return true;
    int status = 0;
    const pid_t ended = waitpid(pid_, &status, WNOHANG);
    if (ended < 0) throw std::runtime_error("waitpid failed");
    if (ended != 0) {
      pid_ = 0;
      Judge(status);
    } else if (seen_case_ != shared_.case_number) {
      seen_case_ = shared_.case_number;
      since_ = Clock::now();
    } else if (Clock::now() - since_ > kLongestCase) {
      Kill();
      finding_ = Finding{.text = kHangs};
    }
    return pid_ == 0;
  }
  const std::optional<Finding>& finding() const { return finding_; }
  const Shared& shared() const { return shared_; }

 private:
  void Judge(int status) {
    if (shared_.has_finding) {
      finding_ = ReportOf(shared_);
    } else if (WIFSIGNALED(status)) {
      finding_ =
          Finding{.text = std::string("the process ended by ") + strsignal(WTERMSIG(status))};
    } else if (WEXITSTATUS(status) != 0) {
      finding_ =
          Finding{.text = "the process ended with status " + std::to_string(WEXITSTATUS(status))};
    }
  }
  void Kill() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

  Shared& shared_;
  pid_t pid_ = 0;  // 0: it has ended
  uint64_t seen_case_;
  Clock::time_point since_ = Clock::now();
  std::optional<Finding> finding_;
};

std::optional<Finding> RunInChild(const Case& c, Shared& shared) {
  Child child(shared, [&](Shared& of_child) { RunOne(c, of_child); });
  while (!child.HasEnded()) std::this_thread::sleep_for(kPoll);
  return child.finding();
}

// Takes away what the finding does not need. A simpler case may fail in another place.
void MakeSimpler(Case& c, Finding& finding, Shared& shared) {
  if (finding.text == kHangs) return;  // each attempt would take as long
  int attempts = kMostAttempts;
  const auto end = Clock::now() + kLongestSimplification;
  for (bool is_simpler = true; is_simpler;) {
    is_simpler = false;
    for (const Case& candidate : Simpler(c)) {
      if (--attempts < 0 || Clock::now() > end) return;
      auto found = RunInChild(candidate, shared);
      if (!found.has_value()) continue;
      c = candidate;
      finding = *found;
      is_simpler = true;
      break;
    }
  }
}

void Print(const Case& c, const Finding& finding) {
  std::printf("finding: %s\ncase:    %s\nagain:   random_calls --case '%s'\nas a program:\n%s\n",
              finding.text.c_str(), LineOf(c).c_str(), LineOf(c).c_str(),
              ProgramOf(c, finding).c_str());
}

// Returns false if a kind of call was never made.
bool PrintCoverage(const std::vector<uint64_t>& tensors) {
  std::printf("%-15s %-15s %-5s %6s", "collective", "codec", "mode", "levels");
  for (int64_t i = 0; i < kCountClasses; ++i) {
    std::printf(" %8s", ("n=" + NameOfCountClass(i)).c_str());
  }
  std::optional<Cell> row;
  for (size_t i = 0; i < Cells().size(); ++i) {
    Cell cell = Cells()[i];
    const int64_t count_class = std::exchange(cell.count_class, 0);
    if (cell != row) {
      std::printf("\n%-15s %-15s %-5s %6lld", NameOfCollective(cell.collective).c_str(),
                  NameOfCodec(cell.codec).c_str(), NameOfMode(cell.mode).c_str(),
                  static_cast<long long>(cell.levels));
      row = cell;
      // Without elements an allreduce has one level.
      for (int64_t missing = 0; missing < count_class; ++missing) std::printf(" %8s", "-");
    }
    std::printf(" %8llu", static_cast<unsigned long long>(tensors[i]));
  }
  std::printf("\n");
  return std::ranges::find(tensors, 0u) == tensors.end();
}

// Child number `k` runs every kChildren-th case from there on.
void RunCases(const Options& options, uint64_t k, Clock::time_point begin, Shared& shared) {
  const auto end = begin + std::chrono::duration<double>(options.seconds);
  for (uint64_t i = k;; i += kChildren) {
    const bool is_enough =
        options.cases != 0 ? i >= options.cases : i >= CasesForAllCells() && Clock::now() >= end;
    if (is_enough || !RunOne(DrawCase(options.seed, options.first + i), shared)) return;
    ++shared.case_number;
  }
}

int Search(const Options& options) {
  const auto begin = Clock::now();
  std::vector<std::unique_ptr<Child>> children;
  for (uint64_t k = 0; k < kChildren; ++k) {
    children.push_back(std::make_unique<Child>(
        NewShared(), [&](Shared& shared) { RunCases(options, k, begin, shared); }));
  }
  for (uint64_t k = 0, ended = 0; ended < kChildren; k = (k + 1) % kChildren) {
    if (k == 0) {
      ended = 0;
      std::this_thread::sleep_for(kPoll);
    }
    if (!children[k]->HasEnded()) continue;
    ++ended;
    if (!children[k]->finding().has_value()) continue;
    const uint64_t number = options.first + children[k]->shared().case_number * kChildren + k;
    Finding found = *children[k]->finding();
    children.clear();  // ends the others
    Case c = DrawCase(options.seed, number);
    std::printf("seed %llu, case %llu: %s\n%s\n", static_cast<unsigned long long>(options.seed),
                static_cast<unsigned long long>(number), found.text.c_str(), LineOf(c).c_str());
    MakeSimpler(c, found, NewShared());
    Print(c, found);
    return 1;
  }
  uint64_t cases = 0, calls = 0;
  std::vector<uint64_t> tensors(Cells().size());
  for (const auto& child : children) {
    cases += child->shared().case_number;
    calls += child->shared().calls;
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i] += child->shared().tensors[i];
  }
  const bool is_covered = PrintCoverage(tensors);
  std::printf("seed %llu: %llu cases, %llu calls, %.1f s\n",
              static_cast<unsigned long long>(options.seed), static_cast<unsigned long long>(cases),
              static_cast<unsigned long long>(calls),
              std::chrono::duration<double>(Clock::now() - begin).count());
  if (is_covered || options.cases != 0) return 0;
  std::printf("a kind of call was never made\n");
  return 1;
}

// How the output of the first tensor on rank 0 begins in the last round: a program of a case
// without a finding compares that.
Finding LastResult(const Case& c) {
  Finding result = {.text = "no finding", .round = static_cast<int>(c.events.size()) - 1};
  if (!HasModel(c.tensors[0])) return result;
  const Bytes output = Expected(c, 0).back()[0];
  result.expected.assign(output.begin(),
                         output.begin() + static_cast<std::ptrdiff_t>(
                                              std::min(sizeof(Shared::expected), output.size())));
  return result;
}

int Replay(const Options& options) {
  Case c = ParseLine(options.line);
  MakeLegal(c);
  auto found = RunInChild(c, NewShared());
  if (options.prints_program) {
    std::printf("%s", ProgramOf(c, found.has_value() ? *found : LastResult(c)).c_str());
  }
  if (!found.has_value()) {
    std::fprintf(stderr, "no finding\n");
    return 0;
  }
  std::fprintf(stderr, "finding: %s\n", found->text.c_str());
  return 1;
}

// A number from the environment, as .ci/run sets it.
const char* Or(const char* variable, const char* fallback) {
  const char* const value = std::getenv(variable);
  return value != nullptr ? value : fallback;
}

Options Parse(int argc, char** argv) {
  Options options;
  options.seed = std::stoull(Or("GENERATOR_SEED", "1"));
  options.seconds = std::stod(Or("GENERATOR_SECONDS", "20"));
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--program") {
      options.prints_program = true;
      continue;
    }
    if (i + 1 == argc) throw std::invalid_argument(flag + " needs a value");
    const std::string value = argv[++i];
    if (flag == "--seed") {
      options.seed = std::stoull(value);
    } else if (flag == "--first") {
      options.first = std::stoull(value);
    } else if (flag == "--cases") {
      options.cases = std::stoull(value);
    } else if (flag == "--seconds") {
      options.seconds = std::stod(value);
    } else if (flag == "--case") {
      options.line = value;
    } else {
      throw std::invalid_argument("unknown flag " + flag);
    }
  }
  return options;
}

}  // namespace
}  // namespace onebit::testing::generator

int main(int argc, char** argv) {
  using namespace onebit::testing::generator;
  try {
    const Options options = Parse(argc, argv);
    return options.line.empty() ? Search(options) : Replay(options);
  } catch (const std::exception& e) {
    std::fprintf(stderr,
                 "random_calls: %s\nusage: random_calls [--seed N] [--first N] [--cases N] "
                 "[--seconds N] [--case LINE [--program]]\n",
                 e.what());
    return 2;
  }
}
