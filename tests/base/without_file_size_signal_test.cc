// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "base/without_file_size_signal.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

#include <gtest/gtest.h>

namespace onebit {
namespace {

// Files of this process may not grow while it lives.
class NoFileSize {
 public:
  NoFileSize() {
    getrlimit(RLIMIT_FSIZE, &former_);
    const rlimit none = {.rlim_cur = 0, .rlim_max = former_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
  }
  ~NoFileSize() { setrlimit(RLIMIT_FSIZE, &former_); }
  NoFileSize(const NoFileSize&) = delete;
  NoFileSize& operator=(const NoFileSize&) = delete;

 private:
  rlimit former_ = {};
};

bool IsPending() {
  sigset_t pending;
  return sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
}

class WithoutFileSizeSignalTest : public ::testing::Test {
 protected:
  ~WithoutFileSizeSignalTest() override { std::fclose(file_); }

  // Returns the error of a write that the limit forbids.
  int WriteTooMuch() {
    const NoFileSize limit;
    const WithoutFileSizeSignal no_signal;
    return write(fileno(file_), "x", 1) == 1 ? 0 : errno;
  }

  std::FILE* const file_ = std::tmpfile();
};

TEST_F(WithoutFileSizeSignalTest, AWriteBeyondTheLimitIsAnErrorAndNothingElse) {
  EXPECT_EQ(WriteTooMuch(), EFBIG);
  EXPECT_FALSE(IsPending());
  sigset_t mask;
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &mask), 0);
  EXPECT_EQ(sigismember(&mask, SIGXFSZ), 0);
}

TEST_F(WithoutFileSizeSignalTest, ASignalThatWaitedBeforeStillWaits) {
  sigset_t signal;
  sigset_t former;
  sigemptyset(&signal);
  sigaddset(&signal, SIGXFSZ);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &signal, &former), 0);
  raise(SIGXFSZ);
  EXPECT_EQ(WriteTooMuch(), EFBIG);
  EXPECT_TRUE(IsPending());
  const timespec at_once = {};
  EXPECT_EQ(sigtimedwait(&signal, nullptr, &at_once), SIGXFSZ);
  pthread_sigmask(SIG_SETMASK, &former, nullptr);
}

TEST_F(WithoutFileSizeSignalTest, KeepsTheError) {
  errno = ENOSPC;
  { const WithoutFileSizeSignal no_signal; }
  EXPECT_EQ(errno, ENOSPC);
}

}  // namespace
}  // namespace onebit
