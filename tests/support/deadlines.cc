// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/deadlines.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>

namespace onebit::testing {
namespace {

// Long enough for the scheduler to run other threads in between.
constexpr double kProbeSeconds = 0.02;
constexpr double kMostPace = 50;
// About this many threads must run one after the other before a rank sees another rank's action.
constexpr double kThreads = 3;

double Seconds(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

uint64_t PacedMs(uint64_t idle_ms) {
  const double begin = Seconds(CLOCK_MONOTONIC);
  const double given_at_begin = Seconds(CLOCK_THREAD_CPUTIME_ID);
  double given = 0;
  while (given < kProbeSeconds) given = Seconds(CLOCK_THREAD_CPUTIME_ID) - given_at_begin;
  const double pace = (Seconds(CLOCK_MONOTONIC) - begin) / given;
  const double lost = kThreads * (std::clamp(pace, 1.0, kMostPace) - 1);
  return static_cast<uint64_t>(static_cast<double>(idle_ms) * (1 + lost));
}

double NumberAfter(const std::string& text, std::string_view words) {
  const size_t at = text.find(words);
  return at == std::string::npos ? -1 : std::strtod(text.c_str() + at + words.size(), nullptr);
}

}  // namespace onebit::testing
