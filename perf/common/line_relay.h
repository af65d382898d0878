// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Passes bytes from one descriptor on to another as they come: whole lines with a tag in front, or
// everything as it is.
#pragma once

#include <string>

#include "perf/common/child_process.h"

namespace onebit::perf {

// Lines of one stream of one rank. A line that comes in parts is written once it is complete, so
// that lines of several ranks do not mix.
class LineRelay {
 public:
  // `from` is read without blocking; `to` is borrowed.
  LineRelay(Descriptor from, int to, std::string tag);

  // -1 once the stream has ended.
  int from() const { return from_.number(); }
  // Passes on what is there now. False when `to` cannot be written any more.
  bool Pump();
  // The same, and a last line without its end. To be called when nothing more will come.
  bool Finish();

 private:
  bool WriteLines();

  Descriptor from_;
  int to_;
  std::string tag_;
  std::string pending_;  // the beginning of a line
};

// What is typed at a terminal, for a child that is not in the terminal's foreground group and would
// be stopped if it read there itself.
class InputRelay {
 public:
  InputRelay(int from, Descriptor to) : from_(from), to_(std::move(to)) {}

  // -1 once there is nothing to wait for.
  int from() const { return to_.is_open() ? from_ : -1; }
  // Passes on what is there; at its end closes the child's input.
  void Pump();

 private:
  int from_;
  Descriptor to_;
};

// Writes everything. False on an error.
bool WriteAll(int descriptor, const char* bytes, size_t size);

}  // namespace onebit::perf
