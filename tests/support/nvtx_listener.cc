// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// NVTX loads this instead of a profiler, by NVTX_INJECTION64_PATH. It counts the ranges of each
// name and prints them to the file NVTX_LISTENER_FILE when the process ends.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <nvtx3/nvToolsExt.h>

namespace {

struct Counts {
  std::mutex mutex;  // guards all members
  std::string domain;
  std::map<std::string, int> ranges;
  int unended = 0;
};

Counts& TheCounts() {
  static Counts* const counts = new Counts;
  return *counts;
}

nvtxDomainHandle_t CreateDomain(const char* name) {
  Counts& counts = TheCounts();
  const std::lock_guard lock(counts.mutex);
  counts.domain += name;
  return reinterpret_cast<nvtxDomainHandle_t>(&counts);
}

int PushRange(nvtxDomainHandle_t, const nvtxEventAttributes_t* attributes) {
  Counts& counts = TheCounts();
  const std::lock_guard lock(counts.mutex);
  ++counts.ranges[attributes->message.ascii];
  return counts.unended++;
}

int PopRange(nvtxDomainHandle_t) {
  Counts& counts = TheCounts();
  const std::lock_guard lock(counts.mutex);
  return --counts.unended;
}

void PrintCounts() {
  Counts& counts = TheCounts();
  const char* const path = std::getenv("NVTX_LISTENER_FILE");
  std::FILE* const file = path == nullptr ? nullptr : std::fopen(path, "w");
  if (file == nullptr) return;
  const std::lock_guard lock(counts.mutex);
  std::fprintf(file, "domain %s\nunended %d\n", counts.domain.c_str(), counts.unended);
  for (const auto& [name, count] : counts.ranges) {
    std::fprintf(file, "range %d %s\n", count, name.c_str());
  }
  std::fclose(file);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  const auto set = [&](unsigned int number, auto* function) {
    *table[number] = reinterpret_cast<NvtxFunctionPointer>(function);
  };
  set(NVTX_CBID_CORE2_DomainCreateA, CreateDomain);
  set(NVTX_CBID_CORE2_DomainRangePushEx, PushRange);
  set(NVTX_CBID_CORE2_DomainRangePop, PopRange);
  std::atexit(PrintCounts);
  return 1;
}
