// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A control server in a process of its own, for tests that kill it. Writes its unique id to
// standard output and waits to be killed; ends by itself after a minute.
#include <unistd.h>

#include "tests/support/control_peer.h"

int main() {
  const auto id = onebit::EncodeUniqueId(onebit::testing::StartControlServer());
  if (write(STDOUT_FILENO, id.data(), id.size()) != static_cast<ssize_t>(id.size())) return 1;
  close(STDOUT_FILENO);
  sleep(60);
  return 0;
}
