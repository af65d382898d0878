// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/nccl_preload/linked_onebit.h"

#include <dlfcn.h>

#include <string>
#include <string_view>

#include "plugins/nccl_preload/preload_log.h"

namespace onebit::preload {
namespace {

constexpr char kOnebitFile[] = "libonebit.so.0";

// The interposer is beside libonebit, the drop-in in a folder of its own there.
std::string FolderOfOnebit() {
  constexpr std::string_view kDropInFolder = "/onebit/nccl/";
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&LinkedOnebit::Get), &info) == 0) return "";
  const std::string_view file = info.dli_fname;
  std::string_view folder = file.substr(0, file.rfind('/') + 1);
  if (folder.ends_with(kDropInFolder)) folder.remove_suffix(kDropInFolder.size() - 1);
  return std::string(folder);
}

void* Open() {
  if (void* const loaded = dlopen(kOnebitFile, RTLD_NOW | RTLD_NOLOAD)) return loaded;
  if (void* const beside = dlopen((FolderOfOnebit() + kOnebitFile).c_str(), RTLD_NOW)) {
    return beside;
  }
  return dlopen(kOnebitFile, RTLD_NOW);
}

// Returns the name of the first function that is missing, or null.
const char* FillIn(void* library, LinkedOnebit* functions) {
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto* function) {
    void* const found = dlsym(library, name);
    if (found == nullptr && missing == nullptr) missing = name;
    *function = reinterpret_cast<std::remove_reference_t<decltype(*function)>>(found);
  };
  find("onebitCommInitFrom", &functions->comm_init_from);
  find("onebitCommDestroy", &functions->comm_destroy);
  find("onebitCommAbort", &functions->comm_abort);
  find("onebitCommGetAsyncError", &functions->comm_async_error);
  find("onebitCommGetStats", &functions->comm_stats);
  find("onebitCompressorCreate", &functions->compressor_create);
  find("onebitCompressorDestroy", &functions->compressor_destroy);
  find("onebitCompressorGetResidualNorm", &functions->compressor_residual_norm);
  find("onebitAllReduce", &functions->all_reduce);
  find("onebitReduceScatter", &functions->reduce_scatter);
  find("onebitAllGather", &functions->all_gather);
  find("onebitAllToAll", &functions->all_to_all);
  find("onebitSend", &functions->send);
  find("onebitRecv", &functions->recv);
  find("onebitGroupStart", &functions->group_start);
  find("onebitGroupEnd", &functions->group_end);
  find("onebitGetLastError", &functions->last_error);
  return missing;
}

const LinkedOnebit* Load() {
  void* const library = Open();
  if (library == nullptr) {
    Log(LogLevel::kWarn, "ONEBIT_NCCL_RULES is set, but NCCL calls cannot be compressed: %s",
        dlerror());
    return nullptr;
  }
  static LinkedOnebit functions;
  if (const char* const missing = FillIn(library, &functions)) {
    Log(LogLevel::kWarn,
        "ONEBIT_NCCL_RULES is set, but NCCL calls cannot be compressed: %s has no %s", kOnebitFile,
        missing);
    return nullptr;
  }
  return &functions;
}

}  // namespace

const LinkedOnebit* LinkedOnebit::Get() {
  static const LinkedOnebit* const loaded = Load();
  return loaded;
}

}  // namespace onebit::preload
