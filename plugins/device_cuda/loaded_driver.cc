// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/device_cuda/loaded_driver.h"

#include <string_view>
#include <type_traits>

#include "plugins/device_cuda/error.h"

namespace onebit::device_cuda {
namespace {

using cuda::kDriverLibrary;

// The table agrees with cuda.h. If cuda.h replaced one of these names by a macro, it would be
// declared as one function and looked up as another. CUDA 13 does so with cuEventElapsedTime, of
// which either version will do.
#define ONEBIT_EXPANDED(name) ONEBIT_AS_WRITTEN(name)
#define ONEBIT_AS_WRITTEN(name) #name
#define ONEBIT_X(name, parameters)                                           \
  static_assert(std::string_view(#name) == ONEBIT_EXPANDED(name) ||          \
                    std::string_view(#name) == "cuEventElapsedTime",         \
                "cuda.h gives this function another version: write it out"); \
  static_assert(std::is_same_v<decltype(&::name), CUresult(*) parameters>);
ONEBIT_CUDA_DRIVER_FUNCTIONS(ONEBIT_X)
#undef ONEBIT_X

// Formats 12040 as "12.4".
std::string VersionText(int version) { return Text("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

std::string StartDriver(Driver* driver) {
  void* const library = cuda::LoadedDriverLibrary();
  if (library == nullptr) {
    return Text(
        "the process has not loaded the CUDA driver ({}): make a CUDA call, such as cudaSetDevice, "
        "before you pass CUDA memory to onebit",
        kDriverLibrary);
  }
  const char* const missing = cuda::FindFunctions(library, driver);
  int version = 0;
  if (driver->cuDriverGetVersion == nullptr ||
      driver->cuDriverGetVersion(&version) != CUDA_SUCCESS) {
    return Text(
        "{} does not report its version, so it is not a CUDA driver (the toolkit has a stub of "
        "that name, for linking only)",
        kDriverLibrary);
  }
  if (version < kMinDriverVersion) {
    return Text("the CUDA driver is for CUDA {}; onebit needs {} or later", VersionText(version),
                VersionText(kMinDriverVersion));
  }
  if (missing != nullptr) {
    return Text("the CUDA driver is for CUDA {} and lacks {}; onebit needs CUDA {} or later",
                VersionText(version), missing, VersionText(kMinDriverVersion));
  }
  if (const CUresult error = driver->cuInit(0); error != CUDA_SUCCESS) {
    return Text("the CUDA driver failed to start, cuInit: {}", cuda::ErrorText(*driver, error));
  }
  return "";
}

}  // namespace onebit::device_cuda
