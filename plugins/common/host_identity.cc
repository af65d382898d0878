// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Identity made of the boot id, the host's name, the namespaces and the user.
#include "plugins/common/host_identity.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace onebit::plugin {
namespace {

// The boot id of the running kernel.
std::string BootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

}  // namespace

uint64_t HashOf(const void* bytes, uint64_t byte_count, uint64_t seed) {
  // This is FNV-1a with a final mix.
  uint64_t hash = 0xcbf29ce484222325 ^ seed;
  const auto* at = static_cast<const unsigned char*>(bytes);
  for (uint64_t i = 0; i < byte_count; ++i) hash = (hash ^ at[i]) * 0x100000001b3;
  hash ^= hash >> 32;
  hash *= 0x9e3779b97f4a7c15;
  return hash ^ hash >> 29;
}

uint64_t IdentityOfThisMachine() {
  const std::string boot = BootId();
  return HashOf(boot.data(), boot.size(), 3);
}

HostIdentity IdentityOfThisHost() {
  std::ostringstream text;
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  text << BootId() << '|' << name << '|' << geteuid();
  // POSIX shared memory needs a common process namespace (UCX opens it by /proc/<pid>), System V a
  // common IPC namespace. The network namespace separates simulated hosts of one machine, which
  // have addresses of their own.
  for (const char* kind : {"net", "ipc", "pid", "user"}) {
    struct stat status {};
    const std::string path = std::string("/proc/self/ns/") + kind;
    if (stat(path.c_str(), &status) == 0) text << '|' << status.st_ino;
  }
  const std::string all = text.str();
  return {{HashOf(all.data(), all.size(), 1), HashOf(all.data(), all.size(), 2)}};
}

}  // namespace onebit::plugin
