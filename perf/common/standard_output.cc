// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/standard_output.h"

#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

char closed_text[128];  // read by the handler

// A socket or another pipe may be the cause as well. The signal ends the program when it comes
// back.
void OnBrokenPipe(int) {
  pollfd output = {STDOUT_FILENO, POLLOUT, 0};
  if (poll(&output, 1, 0) > 0 && (output.revents & POLLERR) != 0) {
    [[maybe_unused]] const ssize_t written =
        write(STDERR_FILENO, closed_text, std::strlen(closed_text));
  }
  raise(SIGPIPE);
}

}  // namespace

void SayIfOutputCloses(std::string_view tool) {
  struct sigaction former = {};
  if (sigaction(SIGPIPE, nullptr, &former) != 0 || former.sa_handler != SIG_DFL) return;
  fmt::format_to_n(closed_text, sizeof(closed_text) - 1, "{}: output pipe was closed\n", tool);
  struct sigaction action = {};
  action.sa_handler = OnBrokenPipe;
  action.sa_flags = SA_RESETHAND;
  sigaction(SIGPIPE, &action, nullptr);
}

void IgnoreClosedOutput() { std::signal(SIGPIPE, SIG_IGN); }

void Print(std::string_view text) {
  const bool is_written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (is_written && std::fflush(stdout) == 0) return;
  if (errno == EPIPE) throw ToolError("output pipe was closed");
  throw ToolError(fmt::format("cannot write to standard output: {}", ErrnoText()));
}

}  // namespace onebit::perf
