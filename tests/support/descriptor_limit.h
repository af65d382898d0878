// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Makes a process run short of file descriptors.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <vector>

#include <gtest/gtest.h>

#include "comm/socket.h"

namespace onebit::testing {

// UndefinedBehaviorSanitizer, which comes with AddressSanitizer here, inspects objects through a
// pipe; without descriptors it takes valid ones for invalid. Tests that need a shortage stop here
// under it.
#if defined(__SANITIZE_ADDRESS__)
#define ONEBIT_SKIP_IF_SANITIZER_NEEDS_DESCRIPTORS() \
  GTEST_SKIP() << "the sanitizer needs descriptors of its own"
#else
#define ONEBIT_SKIP_IF_SANITIZER_NEEDS_DESCRIPTORS()
#endif

// Lowers the limit to the open descriptors plus `more`. The system limits numbers, so gaps between
// open descriptors are filled.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(size_t more) {
    getrlimit(RLIMIT_NOFILE, &former_);
    const auto most = static_cast<int>(former_.rlim_cur);
    int end = 0;
    for (int fd = 0; fd < most; ++fd) {
      if (fcntl(fd, F_GETFD) >= 0) end = fd + 1;
    }
    for (int fd = 0; fd < end; ++fd) {
      if (fcntl(fd, F_GETFD) < 0) fillers_.emplace_back(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, fd));
    }
    rlimit lowered = former_;
    lowered.rlim_cur = static_cast<rlim_t>(end) + more;
    setrlimit(RLIMIT_NOFILE, &lowered);
  }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &former_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit former_ = {};
  std::vector<Descriptor> fillers_;
};

}  // namespace onebit::testing
