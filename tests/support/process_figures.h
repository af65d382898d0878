// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Resources of this process, for tests of leaks and of idle work.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace onebit::testing {

size_t OpenDescriptors();
size_t Threads();
double CpuSeconds();  // of all threads so far
uint64_t Sleeps();    // of all threads so far: how often one has waited for something
size_t ResidentBytes();

// Waits until all other threads of this process wait for something, as calls do that lack a peer.
// Returns false after the time-out.
bool AwaitOtherThreadsAsleep(std::chrono::milliseconds timeout = std::chrono::minutes(1));

// Waits until at most `most` are left; returns false after the time-out.
bool DescriptorsSettleAt(size_t most, std::chrono::milliseconds timeout);
bool ThreadsSettleAt(size_t most, std::chrono::milliseconds timeout);

}  // namespace onebit::testing
