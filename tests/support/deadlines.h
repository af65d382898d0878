// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Deadlines in tests that hold on a busy machine, and what an error says of the one that passed.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace onebit::testing {

// How long a test waits for what must happen: it returns as soon as it does, so only a test that
// fails takes this long.
inline constexpr std::chrono::milliseconds kPatience{30'000};

// `idle_ms` on an idle machine. On a busy one it grows with the time that a thread waits for a
// core, so that it passes only for ranks that cannot make progress.
uint64_t PacedMs(uint64_t idle_ms);
// A deadline that a test runs into on purpose.
inline uint64_t ShortTimeoutMs() { return PacedMs(400); }

// Errors give seconds with one decimal.
inline constexpr double kRounding = 0.05;
// The number behind `words` in an error text, or -1 if it does not have them.
double NumberAfter(const std::string& text, std::string_view words);

}  // namespace onebit::testing
