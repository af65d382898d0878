// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Searches what the process has loaded, without finding this library itself.
#include "plugins/nccl_preload/real_nccl.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "plugins/nccl_preload/preload_log.h"

namespace onebit::preload {
namespace {

constexpr char kNcclFile[] = "libnccl.so.2";

const void* BaseOf(const void* address) {
  Dl_info info{};
  return address != nullptr && dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

bool IsOwn(const void* address) {
  return BaseOf(address) == BaseOf(reinterpret_cast<const void*>(&FindReal));
}

// Looks up "ncclAllReduce" under its strong name, pncclAllReduce, which other libraries in front of
// NCCL leave alone. RTLD_NEXT, where it stands for `library`, may have such a library as well.
void* Find(void* library, const char* name) {
  const std::string strong = std::string("p") + name;
  for (const char* each : {library == RTLD_NEXT ? name : strong.c_str(), name}) {
    void* const found = dlsym(library, each);
    if (found != nullptr && !IsOwn(found)) return found;
  }
  return nullptr;
}

bool HasNccl(void* library) { return library != nullptr && Find(library, "ncclGetVersion"); }

// A copy of NCCL that the process has loaded from a path, as JAX does: its name is not kNcclFile.
void* FindLoadedFile() {
  std::vector<std::string> files;
  const auto add = [](dl_phdr_info* info, size_t, void* to) {
    const char* const name = info->dlpi_name;
    if (name != nullptr && std::strstr(name, "/libnccl.so") != nullptr) {
      static_cast<std::vector<std::string>*>(to)->emplace_back(name);
    }
    return 0;
  };
  dl_iterate_phdr(add, &files);
  for (const std::string& file : files) {
    void* const library = dlopen(file.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (HasNccl(library)) return library;
  }
  return nullptr;
}

// A library named like NCCL hides NCCL from the loader, so its folders are searched by path.
void* FindInFolders() {
  std::string folders;
  if (const char* path = secure_getenv("LD_LIBRARY_PATH")) folders = path;
  folders +=
      ":/usr/local/cuda/lib64:/usr/local/cuda/lib:/usr/lib/x86_64-linux-gnu:"
      "/usr/lib/aarch64-linux-gnu:/usr/lib64:/usr/lib";
  size_t begin = 0;
  while (begin <= folders.size()) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string folder = folders.substr(begin, end - begin);
    begin = end + 1;
    if (folder.empty()) continue;
    void* const library = dlopen((folder + "/" + kNcclFile).c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (HasNccl(library)) return library;
  }
  return nullptr;
}

void* OpenReal() {
  if (const char* path = secure_getenv("ONEBIT_NCCL_LIB"); path != nullptr && *path != '\0') {
    void* const named = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (HasNccl(named)) return named;
    Log(LogLevel::kWarn, "ONEBIT_NCCL_LIB: %s is not NCCL: %s", path,
        named == nullptr ? dlerror() : "it has no ncclGetVersion of its own");
    return nullptr;
  }
  void* const loaded = dlopen(kNcclFile, RTLD_LAZY | RTLD_NOLOAD);
  if (HasNccl(loaded)) return loaded;
  if (void* const file = FindLoadedFile()) return file;
  if (HasNccl(RTLD_NEXT)) return RTLD_NEXT;
  void* const opened = dlopen(kNcclFile, RTLD_LAZY | RTLD_LOCAL);
  if (HasNccl(opened)) return opened;
  if (void* const in_folder = FindInFolders()) return in_folder;
  Log(LogLevel::kWarn,
      "no NCCL was found behind this library: set ONEBIT_NCCL_LIB to the path of libnccl.so.2");
  return nullptr;
}

}  // namespace

void* FindReal(const char* name) noexcept {
  static std::mutex mutex;
  static bool was_searched = false;
  static void* library = nullptr;  // never closed: threads of NCCL may be inside
  const std::lock_guard lock(mutex);
  try {
    if (!was_searched) library = OpenReal();
    was_searched = true;
    // RTLD_NEXT is not null.
    return library == nullptr ? nullptr : Find(library, name);
  } catch (const std::bad_alloc&) {
    Log(LogLevel::kWarn, "NCCL's %s was not looked up: out of memory", name);
    return nullptr;
  }
}

}  // namespace onebit::preload
