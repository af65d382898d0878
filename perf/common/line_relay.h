// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Passes bytes from one descriptor on to another as they come: whole lines with a tag in front, or
// everything as it is. Nothing here waits for a reader.
#pragma once

#include <poll.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "perf/common/child_process.h"

namespace onebit::perf {

// What is still to be written to a descriptor that others may share.
class OutputQueue {
 public:
  // `to` is borrowed, and its flags are left as they are: they are also those of whoever started
  // us.
  explicit OutputQueue(int to);

  void Append(std::string_view text);
  // Writes as much as can be written at once. False when `to` cannot be written any more; from then
  // on everything is dropped.
  bool Flush();
  bool is_empty() const { return begin_ == bytes_.size(); }
  // Who would add much should wait.
  bool is_full() const;
  // To be waited for, until it can be written; -1: there is nothing to write.
  int waiting() const { return is_empty() ? -1 : to_; }

 private:
  Descriptor own_;  // the same file, opened once more, so that it can be written without blocking
  int to_;
  bool is_broken_ = false;
  std::string bytes_;
  size_t begin_ = 0;  // of what is not written yet
};

// Lines of one stream of one rank. A line that comes in parts is written once it is complete, so
// that lines of several ranks do not mix.
class LineRelay {
 public:
  // `from` is read without blocking; `to` is borrowed.
  LineRelay(Descriptor from, OutputQueue* to, std::string tag);

  // To be waited for, until it can be read; -1: the stream has ended, or `to` is full.
  int waiting() const { return to_->is_full() ? -1 : from_.number(); }
  // Passes on a part of what is there now, unless `to` is full. False when there is nothing.
  bool Pump();
  // Passes on a last line without its end. To be called when nothing more will come.
  void Finish();

 private:
  void PassLines();

  Descriptor from_;
  OutputQueue* to_;
  std::string tag_;
  std::string pending_;  // the beginning of a line
};

// What is typed at a terminal, for a child that is not in the terminal's foreground group and would
// be stopped if it read there itself.
class InputRelay {
 public:
  // `from` is borrowed; `to` is written without blocking.
  InputRelay(int from, Descriptor to);

  // What to wait for: that the child reads what it has not read yet, or that more comes.
  pollfd Wait() const;
  // To be called when that is so. At the end of the input closes the child's.
  void Pump();

 private:
  int from_;
  Descriptor to_;
  std::string pending_;  // read, and not written yet
};

// Writes everything. False on an error.
bool WriteAll(int descriptor, const char* bytes, size_t size);

}  // namespace onebit::perf
