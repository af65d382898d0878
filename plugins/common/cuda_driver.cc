// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/common/cuda_driver.h"

#include <dlfcn.h>

namespace onebit::cuda {
namespace {

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace

void* LoadedDriverLibrary() { return dlopen(kDriverLibrary, RTLD_NOW | RTLD_NOLOAD); }

const char* FindFunctions(void* library, Driver* driver) {
  const char* missing = nullptr;
#define ONEBIT_X(name, parameters) \
  if (!Find(library, #name, &driver->name) && missing == nullptr) missing = #name;
  ONEBIT_CUDA_DRIVER_FUNCTIONS(ONEBIT_X)
#undef ONEBIT_X
  Find(library, "cuFuncLoad", &driver->cuFuncLoad);
  return missing;
}

std::string ErrorText(const Driver& driver, CUresult error) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.cuGetErrorName(error, &name) != CUDA_SUCCESS || name == nullptr) {
    return "CUDA error " + std::to_string(static_cast<int>(error));
  }
  if (driver.cuGetErrorString(error, &text) != CUDA_SUCCESS || text == nullptr) return name;
  return std::string(name) + " (" + text + ")";
}

}  // namespace onebit::cuda
