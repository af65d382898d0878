// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Relays bytes from one descriptor to another as they come: whole lines with a tag in front, or
// everything unchanged. Nothing here waits for a reader.
#pragma once

#include <poll.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "perf/common/child_process.h"

namespace onebit::perf {

// Takes output.
class ByteSink {
 public:
  virtual ~ByteSink() = default;
  virtual void Append(std::string_view bytes) = 0;
  // Callers that produce much should wait.
  virtual bool is_full() const = 0;
};

// Pending output for a descriptor that others may share.
class OutputQueue : public ByteSink {
 public:
  // `to` is borrowed. Its flags are left alone, because other processes share them.
  explicit OutputQueue(int to);

  void Append(std::string_view bytes) override;
  // Writes as much as possible without blocking. Returns false once `to` cannot be written any
  // more; from then on everything is dropped.
  bool Flush();
  bool is_empty() const { return begin_ == bytes_.size(); }
  bool is_full() const override;
  // The descriptor to poll for writing; -1: there is nothing to write.
  int waiting() const { return is_empty() ? -1 : to_; }

 private:
  Descriptor own_;  // the same file, opened once more, so that it can be written without blocking
  int to_;
  bool is_broken_ = false;
  std::string bytes_;
  size_t begin_ = 0;  // of what is not written yet
};

// The lines of one stream of one rank. An incomplete line is held back until it is complete, so
// lines of several ranks do not mix. Without a tag everything is passed on as it comes.
class LineRelay {
 public:
  // `from` is read without blocking; `to` is borrowed.
  LineRelay(Descriptor from, ByteSink* to, std::optional<std::string> tag);

  // The descriptor to poll for reading; -1: the stream has ended, or `to` is full.
  int waiting() const { return to_->is_full() ? -1 : from_.number(); }
  // Relays a part of the available input, unless `to` is full. Returns false if there is none.
  bool Pump();
  // Relays a last line that has no newline. Call it when nothing more will come.
  void Finish();

 private:
  void PassLines();

  Descriptor from_;
  ByteSink* to_;
  std::optional<std::string> tag_;
  std::string pending_;  // the beginning of a line
};

// Relays terminal input to a child that is not in the terminal's foreground group and would be
// stopped if it read there itself.
class InputRelay {
 public:
  // `from` is borrowed; `to` is written without blocking.
  InputRelay(int from, Descriptor to);

  // The event to poll for: the child can take pending input, or more has been typed.
  pollfd Wait() const;
  // Call it when that event has happened. At the end of the input it closes the child's.
  void Pump();

 private:
  int from_;
  Descriptor to_;
  std::string pending_;  // read, and not written yet
};

// Writes all bytes. Returns false on an error.
bool WriteAll(int descriptor, const char* bytes, size_t size);

}  // namespace onebit::perf
