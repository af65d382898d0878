// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Searches all objects that the process has loaded.
#include "plugins/transport_nccl/other_nccl.h"

#include <dlfcn.h>
#include <link.h>

#include <vector>

namespace onebit::nccl {
namespace {

// Returns the names of all objects except the program and libraries that the kernel maps.
std::vector<std::string> LoadedFiles() {
  std::vector<std::string> files;
  const auto add = [](dl_phdr_info* info, size_t, void* to) {
    if (info->dlpi_name != nullptr && *info->dlpi_name != '\0') {
      static_cast<std::vector<std::string>*>(to)->emplace_back(info->dlpi_name);
    }
    return 0;
  };
  dl_iterate_phdr(add, &files);
  return files;
}

// Returns the base address of the object that holds the function.
const void* BaseOf(const void* function, std::string* file) {
  Dl_info info{};
  if (dladdr(function, &info) == 0) return nullptr;
  if (info.dli_fname != nullptr) *file = info.dli_fname;
  return info.dli_fbase;
}

}  // namespace

std::string OtherNccl(const NcclApi& api) {
  if (api.was_loaded) return "";
  std::string file;
  const void* const own = BaseOf(reinterpret_cast<const void*>(api.GetVersion), &file);
  // The program may contain NCCL itself; null stands for it.
  std::vector<std::string> names = LoadedFiles();
  names.emplace_back();
  for (const std::string& name : names) {
    void* const object = dlopen(name.empty() ? nullptr : name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (object == nullptr) continue;
    // Looks up the strong name, because libraries in front of NCCL have only the other one. The
    // function may come from a library that this object depends on.
    const void* const function = dlsym(object, "pncclCommInitRank");
    const void* const base = function == nullptr ? nullptr : BaseOf(function, &file);
    dlclose(object);
    if (base != nullptr && base != own) return file;
  }
  return "";
}

}  // namespace onebit::nccl
