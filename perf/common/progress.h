// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One line on the terminal that says what is going on. In a pipe or a file nothing is written.
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
  // Removes the line, to be called before anything else is written.
  void Clear();

 private:
  const bool is_terminal_;
  bool is_shown_ = false;
};

}  // namespace onebit::perf
