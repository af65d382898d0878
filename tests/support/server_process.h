// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A control server in a process that can be killed. CMake defines its program,
// ONEBIT_CONTROL_SERVER_PROGRAM.
#pragma once

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <string>

#include "tests/support/control_peer.h"

namespace onebit::testing {

// Stands for rank 0's process.
class ServerProcess {
 public:
  // `most_descriptors` limits its open descriptors, as text.
  explicit ServerProcess(const char* most_descriptors = "1000") {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    const Descriptor read_end(ends[0]);
    {
      const Descriptor write_end(ends[1]);
      posix_spawn_file_actions_t actions;
      posix_spawn_file_actions_init(&actions);
      posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
      posix_spawn_file_actions_addclose(&actions, read_end.get());
      char path[] = ONEBIT_CONTROL_SERVER_PROGRAM;
      std::string limit = most_descriptors;
      char* arguments[] = {path, limit.data(), nullptr};
      const int error = posix_spawn(&pid_, path, &actions, nullptr, arguments, environ);
      posix_spawn_file_actions_destroy(&actions);
      if (error != 0) throw std::runtime_error("posix_spawn");
    }
    std::array<char, kUniqueIdBytes> bytes;
    size_t size = 0;
    while (size < bytes.size()) {
      const ssize_t count = read(read_end.get(), bytes.data() + size, bytes.size() - size);
      if (count <= 0) throw std::runtime_error("the server process does not start");
      size += static_cast<size_t>(count);
    }
    id_ = ValueOrThrow(DecodeUniqueId(bytes));
  }
  ~ServerProcess() {
    Signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  const UniqueId& id() const { return id_; }
  void Signal(int number) const { kill(pid_, number); }

 private:
  pid_t pid_ = 0;
  UniqueId id_;
};

}  // namespace onebit::testing
