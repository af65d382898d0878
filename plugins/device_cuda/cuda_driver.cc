// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/device_cuda/cuda_driver.h"

#include <dlfcn.h>

#include "plugins/device_cuda/error.h"

namespace onebit::device_cuda {
namespace {

constexpr char kDriverLibrary[] = "libcuda.so.1";

// If cuda.h replaced one of these names by a macro, it would be declared as one function and looked
// up as another.
#define ONEBIT_EXPANDED(name) ONEBIT_AS_WRITTEN(name)
#define ONEBIT_AS_WRITTEN(name) #name
#define ONEBIT_X(name)                                            \
  static_assert(std::string_view(#name) == ONEBIT_EXPANDED(name), \
                "cuda.h gives this function another version: write it out");
ONEBIT_CUDA_DRIVER_FUNCTIONS(ONEBIT_X)
#undef ONEBIT_X

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// Formats 12040 as "12.4".
std::string VersionText(int version) { return Text("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

std::string FindDriver(Driver* driver) {
  // The reference that this takes keeps the driver loaded until the process ends.
  void* library = dlopen(kDriverLibrary, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) {
    return Text(
        "the process has not loaded the CUDA driver ({}): make a CUDA call, cudaSetDevice for "
        "instance, before onebit is given CUDA devices",
        kDriverLibrary);
  }
  int version = 0;
  if (!Find(library, "cuDriverGetVersion", &driver->cuDriverGetVersion) ||
      driver->cuDriverGetVersion(&version) != CUDA_SUCCESS) {
    return Text(
        "{} does not tell its version: it is not a CUDA driver (the toolkit has a stub of it, to "
        "link with)",
        kDriverLibrary);
  }
  if (version < kMinDriverVersion) {
    return Text("the CUDA driver is one for CUDA {}; onebit needs {} or later",
                VersionText(version), VersionText(kMinDriverVersion));
  }
#define ONEBIT_X(name)                                                         \
  if (!Find(library, #name, &driver->name)) {                                  \
    return Text(                                                               \
        "the CUDA driver, one for CUDA {}, lacks {}; onebit needs CUDA {} or " \
        "later",                                                               \
        VersionText(version), #name, VersionText(kMinDriverVersion));          \
  }
  ONEBIT_CUDA_DRIVER_FUNCTIONS(ONEBIT_X)
#undef ONEBIT_X
  Find(library, "cuFuncLoad", &driver->cuFuncLoad);

  if (const CUresult error = driver->cuInit(0); error != CUDA_SUCCESS) {
    return Text("the CUDA driver does not start, cuInit: {}", DescribeError(*driver, error));
  }
  return "";
}

std::string DescribeError(const Driver& driver, CUresult error) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.cuGetErrorName(error, &name) != CUDA_SUCCESS || name == nullptr) {
    return Text("CUDA error {}", static_cast<int>(error));
  }
  if (driver.cuGetErrorString(error, &text) != CUDA_SUCCESS || text == nullptr) return name;
  return Text("{} ({})", name, text);
}

}  // namespace onebit::device_cuda
