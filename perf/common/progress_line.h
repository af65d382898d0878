// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A progress line on the terminal. Nothing is written to a pipe or a file.
#pragma once

#include <string_view>

namespace onebit::perf {

class Progress {
 public:
  // Nothing is written unless is_wanted.
  explicit Progress(bool is_wanted);
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Show(std::string_view text);
  // Removes the line. Call it before anything else is written.
  void Clear();

 private:
  const bool is_terminal_;
  bool is_shown_ = false;
};

}  // namespace onebit::perf
