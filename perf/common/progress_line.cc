// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Rewrites one line of stderr while that is a terminal.
#include "perf/common/progress_line.h"

#include <unistd.h>

#include <cstdio>

#include <fmt/format.h>

namespace onebit::perf {

// Rows go to stdout. If that is a file, this line is all that the terminal shows.
Progress::Progress(bool is_wanted) : is_terminal_(is_wanted && isatty(STDERR_FILENO) == 1) {}

void Progress::Show(std::string_view text) {
  if (!is_terminal_) return;
  fmt::print(stderr, "\r\033[K{}", text);
  std::fflush(stderr);
  is_shown_ = true;
}

void Progress::Clear() {
  if (!is_shown_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  is_shown_ = false;
}

}  // namespace onebit::perf
