// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Deadlines for tests that must hold on a busy machine, and the deadline that an error text names.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace onebit::testing {

// Limits the wait for events that must happen. Waits return at the event, so only a failing test
// takes this long.
inline constexpr std::chrono::milliseconds kTestTimeout{30'000};

// Returns `idle_ms` on an idle machine. On a busy one the result grows with the time that a thread
// waits for a core, so the deadline passes only for ranks that cannot make progress.
uint64_t PacedMs(uint64_t idle_ms);
// A deadline that a test exceeds on purpose.
inline uint64_t ShortTimeoutMs() { return PacedMs(400); }

// Errors give seconds with one decimal.
inline constexpr double kRounding = 0.05;
// Returns the number after `words` in an error text, or -1 if the text does not contain them.
double NumberAfter(const std::string& text, std::string_view words);

}  // namespace onebit::testing
