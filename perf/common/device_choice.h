// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Where the buffers of calls are: flag --device.
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

// The CUDA device that a rank uses. Throws ToolError: there is none, or not this one.
int CudaDeviceOf(const DeviceChoice& choice, int rank);

}  // namespace onebit::perf
