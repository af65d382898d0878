// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Fills in the slots of the trampolines.
#include <dlfcn.h>

#include <atomic>
#include <string_view>

#include "plugins/nccl_preload/nccl_exports.h"
#include "plugins/nccl_preload/preload_log.h"
#include "plugins/nccl_preload/real_nccl.h"

namespace onebit::preload {
namespace {

// Stand for functions that the real NCCL does not have.
Result Missing() { return kInvalidUsage; }
const char* MissingText() { return "no NCCL behind onebit's library"; }

bool ReturnsText(std::string_view name) {
  return name.ends_with("GetErrorString") || name.ends_with("GetLastError");
}

// Warns if a program does not find here what the NCCL behind this library has. `function` is one of
// its functions.
bool CompareNames(const void* function) {
  Dl_info info{};
  NcclExports exports;
  // A file that was replaced since is no reason to complain.
  if (dladdr(function, &info) == 0 || ReadNcclExports(info.dli_fname, &exports)) return false;
  const size_t missing = MissingInDropIn(exports.names).size();
  if (missing > 0) {
    Log(LogLevel::kWarn,
        "this library lacks %zu functions of the NCCL behind it: `onebit_info --nccl %s` lists "
        "them",
        missing, info.dli_fname);
  }
  return missing == 0;
}

}  // namespace
}  // namespace onebit::preload

// Returns the function of the real NCCL that `name` stands for ("ncclMemAlloc", "pncclMemAlloc"),
// and stores it in `slot` for later calls. Called by trampolines.S. Programs that use NCCL ask for
// its version, or for the texts of errors, and come here.
extern "C" void* onebitResolveNccl(const char* name, std::atomic<void*>* slot) {
  using onebit::preload::FindReal;
  void* found = FindReal(name[0] == 'p' ? name + 1 : name);
  if (found == nullptr) {
    // A library without this function is not taken for NCCL.
    const char* const why = FindReal("ncclGetVersion") == nullptr
                                ? "there is no NCCL behind this library"
                                : "the NCCL behind this library does not have it";
    onebit::preload::Log(onebit::preload::LogLevel::kWarn, "%s was called, but %s", name, why);
    found = onebit::preload::ReturnsText(name)
                ? reinterpret_cast<void*>(&onebit::preload::MissingText)
                : reinterpret_cast<void*>(&onebit::preload::Missing);
  } else {
    [[maybe_unused]] static const bool is_complete = onebit::preload::CompareNames(found);
  }
  slot->store(found, std::memory_order_release);
  return found;
}
