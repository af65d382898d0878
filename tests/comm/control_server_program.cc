// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A control server in a process of its own, for tests that kill it: control_server_program
// MOST_DESCRIPTORS. Writes its unique id to standard output and waits to be killed; ends by itself
// after a minute.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/support/control_peer.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto most = static_cast<rlim_t>(std::atoi(argv[1]));
  const rlimit limit = {.rlim_cur = most, .rlim_max = most};
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
  const auto id = onebit::EncodeUniqueId(onebit::testing::StartControlServer());
  if (write(STDOUT_FILENO, id.data(), id.size()) != static_cast<ssize_t>(id.size())) return 1;
  close(STDOUT_FILENO);
  sleep(60);  // until the test ends it
  return 0;
}
