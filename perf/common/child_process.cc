// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// fork, a few calls that are allowed between fork and exec, exec; a pipe tells why exec failed.
#include "perf/common/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Makes `to` the same as `from`, and lets it survive exec. dup2() does so only if the two differ.
bool Become(int from, int to) {
  return from == to ? fcntl(to, F_SETFD, 0) == 0 : dup2(from, to) == to;
}

// Runs in the child, where allocating memory could deadlock: a lock that another thread held stays
// locked.
[[noreturn]] void BecomeProgram(const ChildSpec& spec, char* const* arguments,
                                char* const* environment, pid_t parent, int report) {
  // A group makes it possible to signal whatever the rank itself starts.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before it could be watched.
  if (getppid() != parent) _exit(kExitFailed);

  if (spec.announcement >= 0) {
    const pid_t self = getpid();
    // The reader may be gone. SIGPIPE is still ignored here, so the program runs all the same.
    [[maybe_unused]] const ssize_t written = write(spec.announcement, &self, sizeof(self));
  }

  // The parent ignores these signals for itself, and exec would keep that.
  struct sigaction by_default = {};
  by_default.sa_handler = SIG_DFL;
  for (const int signal : {SIGPIPE, SIGTTIN, SIGTSTP}) sigaction(signal, &by_default, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);

  const std::pair<int, int> streams[] = {{spec.standard_input, STDIN_FILENO},
                                         {spec.standard_output, STDOUT_FILENO},
                                         {spec.standard_error, STDERR_FILENO}};
  bool is_ready = true;
  for (const auto& [from, to] : streams) {
    if (from >= 0) is_ready = Become(from, to) && is_ready;
  }
  if (is_ready) execvpe(spec.program.c_str(), arguments, environment);
  const int error = errno;
  // If the pipe fails, the status still tells of the failure.
  if (write(report, &error, sizeof(error)) < 0) _exit(kExitFailed);
  _exit(kExitNotFound);
}

// Returns 0 if exec succeeded, which closed the other end, else its errno.
int ReadReport(int report) {
  int error = 0;
  ssize_t size;
  do {
    size = read(report, &error, sizeof(error));
  } while (size < 0 && errno == EINTR);
  return size == sizeof(error) ? error : 0;
}

}  // namespace

Descriptor::~Descriptor() {
  if (is_open()) close(number_);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    if (is_open()) close(number_);
    number_ = other.Release();
  }
  return *this;
}

int Descriptor::Release() { return std::exchange(number_, -1); }

Pipe MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw ToolError(fmt::format("cannot make a pipe: {}", ErrnoText()));
  }
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

void OccupyStandardStreams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    // open() returns the lowest free number, which is this one.
    Descriptor(open("/dev/null", (stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC))
        .Release();
  }
}

pid_t StartChild(const ChildSpec& spec) {
  Pipe report = MakePipe();
  const std::vector<char*> arguments = Pointers(spec.arguments);
  const std::vector<char*> environment = Pointers(spec.environment);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw ToolError(fmt::format("cannot start a process: {}", ErrnoText()));
  if (child == 0) {
    BecomeProgram(spec, arguments.data(), environment.data(), parent, report.write.number());
  }
  // Parent and child both do this: whichever runs first must find a group that can be signalled.
  setpgid(child, child);
  report.write = Descriptor();
  const int error = ReadReport(report.read.number());
  if (error == 0) return child;
  waitpid(child, nullptr, 0);
  const int status = error == ENOENT || error == ENOTDIR ? kExitNotFound : kExitNotExecutable;
  throw StartError(status, fmt::format("cannot start {}: {}", spec.program,
                                       std::generic_category().message(error)));
}

}  // namespace onebit::perf
