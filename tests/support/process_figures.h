// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What this process holds and uses: for tests of leaks and of idle work.
#pragma once

#include <chrono>
#include <cstddef>

namespace onebit::testing {

size_t OpenDescriptors();
size_t Threads();
double CpuSeconds();  // of all threads so far
size_t ResidentBytes();

// Waits until at most so many are left; false if they are not in time.
bool DescriptorsSettleAt(size_t most, std::chrono::milliseconds patience);
bool ThreadsSettleAt(size_t most, std::chrono::milliseconds patience);

}  // namespace onebit::testing
