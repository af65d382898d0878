// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Adds faults to this build's plugin `ucx`, FAULTY_INNER_FILE.
#include <dlfcn.h>

#include "tests/support/faulty_plugin.h"

namespace onebit::testing {

const onebitTransport* InnerTransport() {
  void* handle = dlopen(FAULTY_INNER_FILE, RTLD_NOW | RTLD_LOCAL);  // never closed
  if (handle == nullptr) return nullptr;
  const auto get =
      reinterpret_cast<onebitTransportGetFunction>(dlsym(handle, ONEBIT_TRANSPORT_SYMBOL));
  return get == nullptr ? nullptr : get();
}

}  // namespace onebit::testing
