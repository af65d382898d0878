// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The flag --device: the memory that holds the buffers of calls.
#pragma once

#include <optional>

namespace CLI {
class App;
}

namespace onebit::perf {

struct DeviceChoice {
  bool is_cuda = false;
  std::optional<int> number = {};  // of the CUDA device; no value: the rank modulo their number

  const char* name() const { return is_cuda ? "cuda" : "cpu"; }
};

void AddDevice(CLI::App& app, DeviceChoice* device);

// Returns the CUDA device that a rank uses. Throws ToolError if it does not exist.
int CudaDeviceOf(const DeviceChoice& choice, int rank);

}  // namespace onebit::perf
