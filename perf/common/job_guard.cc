// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The guard reads the numbers of groups from a pipe. If the pipe ends without the farewell message,
// the launcher has died.
#include "perf/common/job_guard.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "perf/common/line_relay.h"
#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

constexpr pid_t kLastWord = 0;  // no group has this number

// Reads the next number; returns false at the end of the pipe.
bool ReadNumber(int pipe, pid_t* number) {
  ssize_t size;
  do {
    size = read(pipe, number, sizeof(*number));  // a write this short is atomic
  } while (size < 0 && errno == EINTR);
  return size == sizeof(*number);
}

[[noreturn]] void Guard(Descriptor pipe, const std::string& folder) {
  // A new session is out of reach of the terminal's signals. The streams are closed so that nobody
  // who waits for the end of the launcher's output waits for the guard.
  setsid();
  const Descriptor nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    dup2(nothing.number(), stream);
  }
  std::vector<pid_t> groups;
  for (pid_t number; ReadNumber(pipe.number(), &number); groups.push_back(number)) {
    if (number == kLastWord) _exit(kExitOk);
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  std::error_code ignored;
  if (!folder.empty()) std::filesystem::remove_all(folder, ignored);
  _exit(kExitOk);
}

}  // namespace

JobGuard::JobGuard(const std::string& folder) {
  Pipe pipe = MakePipe();
  process_ = fork();
  if (process_ < 0) throw ToolError(fmt::format("cannot start a process: {}", ErrnoText()));
  if (process_ == 0) {
    pipe.write = Descriptor();  // otherwise the pipe would never end
    Guard(std::move(pipe.read), folder);
  }
  pipe_ = std::move(pipe.write);
}

JobGuard::~JobGuard() {
  // If somebody has killed the guard, there is nobody to tell.
  static_cast<void>(
      WriteAll(pipe_.number(), reinterpret_cast<const char*>(&kLastWord), sizeof(kLastWord)));
  pipe_ = Descriptor();
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace onebit::perf
