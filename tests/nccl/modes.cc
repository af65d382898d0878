// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The library of each mode.
#include "tests/nccl/modes.h"

#include <dlfcn.h>

namespace onebit::testing {
namespace {

const std::string kOld = std::string(ONEBIT_NCCL_STAND_INS) + "/libnccl-2.10.so";

}  // namespace

const std::vector<Mode> kModes = {
    {.name = "NonBlocking",
     .settings = {{"ONEBIT_NCCL_BLOCKING", "0"}, {"ONEBIT_NCCL_CLOSE_MS", "300"}},
     .library = ""},
    {.name = "Blocking", .settings = {{"ONEBIT_NCCL_CLOSE_MS", "300"}}, .library = ""},
    {.name = "Release2_10",
     .settings = {{"ONEBIT_NCCL_LIB", kOld}, {"ONEBIT_NCCL_CLOSE_MS", "300"}},
     .library = kOld},
};

std::string NameOf(const ::testing::TestParamInfo<Mode>& info) { return info.param.name; }

void* LibraryOf(const Mode& mode) {
  void* library = mode.library.empty() ? dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD)
                                       : dlopen(mode.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << mode.library;
  return library;
}

void* FunctionOf(const Mode& mode, const char* name) {
  void* function = dlsym(LibraryOf(mode), name);
  EXPECT_NE(function, nullptr) << name;
  return function;
}

Counts Counts::Get(const Mode& mode) {
  Counts counts{};
  ONEBIT_OF_MODE(mode, onebitTestNcclGetCounts)(&counts);
  return counts;
}

Counts Counts::GetAtTheEnd(const Mode& mode) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (Get(mode).live_comms != 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return Get(mode);
}

}  // namespace onebit::testing
