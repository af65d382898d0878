// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The services of a host, and the plugin's file opened as the library opens it.
#include "tests/nccl/plugin.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <utility>

namespace onebit::testing {
namespace {

std::mutex mutex;  // of all below
std::string lines_of_all_levels;
std::string warning_lines;
Settings values;

void Log(int level, const char* text) {
  const std::lock_guard lock(mutex);
  lines_of_all_levels += std::string(text) + "\n";
  if (level <= onebitLogWarn) warning_lines += std::string(text) + "\n";
}

const char* Setting(const char* name) {
  const std::lock_guard lock(mutex);
  const auto found = values.find(name);
  return found == values.end() ? nullptr : found->second.c_str();
}

uint64_t NowNs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

constexpr onebitTransportHost kHost{.structSize = sizeof(onebitTransportHost),
                                    .log = Log,
                                    .setting = Setting,
                                    .nowNs = NowNs,
                                    .interfaces = ""};

}  // namespace

Plugin::Plugin(Settings settings) {
  {
    const std::lock_guard lock(mutex);
    lines_of_all_levels.clear();
    warning_lines.clear();
    values = std::move(settings);
  }
  start_result_ = functions().init(&kHost, &context_);
}

Plugin::~Plugin() {
  if (context_ != nullptr) {
    EXPECT_EQ(functions().finalize(context_), onebitSuccess);
  }
}

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

std::string Plugin::warnings() {
  const std::lock_guard lock(mutex);
  return warning_lines;
}

std::string Plugin::lines() {
  const std::lock_guard lock(mutex);
  return lines_of_all_levels;
}

}  // namespace onebit::testing
