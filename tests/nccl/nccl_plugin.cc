// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/nccl/nccl_plugin.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace onebit::testing {

const onebitTransport& Plugin::functions() {
  static const onebitTransport* table = [] {
    void* library = dlopen(ONEBIT_NCCL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << dlerror();
    const auto get =
        reinterpret_cast<onebitTransportGetFunction>(dlsym(library, ONEBIT_TRANSPORT_SYMBOL));
    return get();
  }();
  return *table;
}

}  // namespace onebit::testing
