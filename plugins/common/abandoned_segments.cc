// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/common/abandoned_segments.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

namespace onebit::plugin {
namespace {

// A write lease is granted only on a file that nobody else has open or mapped. The kernel knows
// that of processes which this one cannot see, too.
bool IsAbandoned(int fd) {
  struct stat facts {};
  if (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_uid != geteuid()) return false;
  if (fcntl(fd, F_SETLEASE, F_WRLCK) != 0) return false;
  fcntl(fd, F_SETLEASE, F_UNLCK);
  return true;
}

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

}  // namespace

int RemoveAbandonedSegments(std::string_view prefix, const std::string& folder) {
  const std::unique_ptr<DIR, CloseFolder> opened(opendir(folder.c_str()));
  if (opened == nullptr) return 0;
  const int at = dirfd(opened.get());
  int removed = 0;
  while (const dirent* entry = readdir(opened.get())) {
    if (!std::string_view(entry->d_name).starts_with(prefix)) continue;
    const int fd = openat(at, entry->d_name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) continue;
    if (IsAbandoned(fd) && unlinkat(at, entry->d_name, 0) == 0) ++removed;
    close(fd);
  }
  return removed;
}

}  // namespace onebit::plugin
