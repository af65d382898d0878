// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Starts one program as a child that cannot outlive its parent.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace onebit::perf {

// A file descriptor that closes itself; -1 is none.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : number_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  int Release();

 private:
  int number_;
};

struct Pipe {
  Descriptor read;
  Descriptor write;
};
// Closed on exec. Throws ToolError.
Pipe MakePipe();

// If a standard stream was closed at our start, the next file to be opened would get its number and
// receive what is meant for the stream. This occupies that number first. Reading and
// writing fail as before, and children find the stream closed.
void OccupyStandardStreams();

struct ChildSpec {
  std::string program;                   // a path, or a name to look for in PATH
  std::vector<std::string> arguments;    // argv, its first element included
  std::vector<std::string> environment;  // "NAME=value"
  // Standard streams of the child; -1: those of the parent.
  int standard_input = -1;
  int standard_output = -1;
  int standard_error = -1;
  // The child writes its process number, a pid_t, to this pipe before it becomes the program; -1:
  // none.
  int announcement = -1;
};

// Starts the child as the leader of a new process group, with no signal blocked. The kernel kills
// it if this thread ends first.
//
// Throws StartError if the program cannot be run, ToolError if the system has no room for another
// process.
pid_t StartChild(const ChildSpec& spec);

}  // namespace onebit::perf
