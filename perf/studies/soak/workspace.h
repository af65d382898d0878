// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The buffers of one rank, allocated once, so that any growth of the process is the library's.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "perf/common/comm_handles.h"
#include "perf/studies/soak/soak_plan.h"

namespace onebit::soak {

struct Workspace {
  // Elements before and after a result that calls must not touch.
  static constexpr size_t kGuard = kMaxShift + 1;

  Workspace(int ranks, size_t max_elements)
      : bytes((max_elements + 2 * kGuard) * sizeof(float)),
        send(bytes),
        recv(bytes),
        expected(bytes) {
    for (int rank = 0; rank < ranks; ++rank) inputs.emplace_back(bytes);
    for (perf::Buffer* buffer : {&send, &recv, &expected}) std::memset(buffer->data(), 0, bytes);
    for (perf::Buffer& buffer : inputs) std::memset(buffer.data(), 0, bytes);
  }

  size_t bytes;  // of each buffer
  perf::Buffer send, recv, expected;
  std::vector<perf::Buffer> inputs;  // of all ranks of a group
};

}  // namespace onebit::soak
