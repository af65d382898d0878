// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/device/device_plugin.h"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

// ThreadSanitizer would make every program with threads left at its end, such as those of streams,
// sleep a second there.
extern "C" [[gnu::visibility("default")]] const char* __tsan_default_options() {
  return "atexit_sleep_ms=0";
}

namespace onebit::testing {

const DeviceFunctions& Plugin() {
  static const DeviceFunctions* const functions = [] {
    void* const library = dlopen(ONEBIT_DEVICE_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    const auto get = reinterpret_cast<DeviceGetFunction>(dlsym(library, kDeviceSymbol));
    if (get == nullptr) throw std::runtime_error(std::string("no ") + kDeviceSymbol);
    return get();
  }();
  return *functions;
}

const DeviceFunctions& StartedPlugin() {
  static const bool is_started = [] {
    int count = 0;
    EXPECT_EQ(Plugin().Start(&count), onebitSuccess) << Plugin().LastError();
    return true;
  }();
  static_cast<void>(is_started);
  return Plugin();
}

}  // namespace onebit::testing
