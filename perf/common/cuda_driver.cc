// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/cuda_driver.h"

#include <dlfcn.h>

#include <cstdlib>

namespace onebit::perf {
namespace {

constexpr char kLibrary[] = "libcuda.so.1";

struct Loaded {
  CudaDriver driver{};
  std::string problem;  // empty: the driver can be used
};

template <class Function>
void Find(void* library, const char* name, Function* function, std::string* missing) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr && missing->empty()) *missing = name;
}

// The driver is never unloaded: the library looks it up as well and keeps its functions.
Loaded Load() {
  Loaded loaded;
  // Streams of a device share its hardware queues, by default so few that a stream which waits for
  // another rank could block the stream that the other rank needs.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    loaded.problem = fmt::format("no CUDA: its driver cannot be loaded: {}",
                                 reason == nullptr ? kLibrary : reason);
    return loaded;
  }
  CudaDriver& driver = loaded.driver;
  std::string missing;
#define ONEBIT_X(name, parameters) Find(library, #name, &driver.name, &missing);
  ONEBIT_CUDA_FUNCTIONS(ONEBIT_X)
#undef ONEBIT_X
  if (!missing.empty()) {
    loaded.problem = fmt::format("no CUDA: {} has no function {}", kLibrary, missing);
    return loaded;
  }
  int count = 0;
  int result = driver.cuInit(0);
  if (result == kCudaSuccess) result = driver.cuDeviceGetCount(&count);
  if (result != kCudaSuccess) {
    loaded.problem = fmt::format("no CUDA: its driver does not start: {}", driver.TextOf(result));
  } else if (count == 0) {
    loaded.problem = "no CUDA: its driver knows of no device";
  }
  return loaded;
}

const Loaded& TheDriver() {
  static const Loaded loaded = Load();
  return loaded;
}

}  // namespace

const CudaDriver& CudaDriver::Get() {
  const Loaded& loaded = TheDriver();
  if (!loaded.problem.empty()) throw NoCudaError(loaded.problem);
  return loaded.driver;
}

const CudaDriver* CudaDriver::Find() {
  const Loaded& loaded = TheDriver();
  return loaded.problem.empty() ? &loaded.driver : nullptr;
}

void CudaDriver::Check(int result, const std::string& done) const {
  if (result != kCudaSuccess) throw ToolError(fmt::format("{}: {}", done, TextOf(result)));
}

std::string CudaDriver::TextOf(int result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &name) != kCudaSuccess || name == nullptr) {
    return fmt::format("CUDA error {}", result);
  }
  if (cuGetErrorString(result, &text) != kCudaSuccess || text == nullptr) return name;
  return fmt::format("{} ({})", name, text);
}

}  // namespace onebit::perf
