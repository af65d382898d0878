// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Looks up NCCL and its functions.
#include "plugins/transport_nccl/nccl_api.h"

#include <dlfcn.h>

#include <cstdio>
#include <utility>

namespace onebit::nccl {
namespace {

constexpr char kLibrary[] = "libnccl.so.2";
constexpr int kOldestVersion = 21000;  // first with ncclAvg

const char* LastDlError() {
  const char* text = dlerror();
  return text == nullptr ? "no reason given" : text;
}

// Looks up "AllReduce" as pncclAllReduce if NCCL has it, as it has since 2.8: the strong name,
// which libraries in front of NCCL do not replace. Data sent here is compressed already, or must
// not be.
void* Find(void* library, const char* name) {
  char symbol[64];
  std::snprintf(symbol, sizeof symbol, "pnccl%s", name);
  void* function = dlsym(library, symbol);
  return function != nullptr ? function : dlsym(library, symbol + 1);
}

// Returns null if the library was not found; dlerror has the cause. *was_loaded is true if the
// process had loaded it already.
void* OpenLibrary(const char* path, bool* was_loaded) {
  *was_loaded = true;
  if (path != nullptr && *path != '\0') {
    void* named = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (named != nullptr) return named;
    *was_loaded = false;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
  }
  void* loaded = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (loaded != nullptr) return loaded;
  // RTLD_DEFAULT is null: a program that contains and exports NCCL counts as a library.
  if (Find(RTLD_DEFAULT, "GetVersion") != nullptr) return dlopen(nullptr, RTLD_NOW);
  *was_loaded = false;
  return dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
}

struct Release {
  int major;
  int minor;
  int patch;
};

// Versions up to 2.8 are X * 1000 + Y * 100 + Z.
Release ReleaseOf(int version) {
  const int unit = version < 10000 ? 1000 : 10000;
  return {version / unit, version % unit / 100, version % 100};
}

std::string TextOf(const Release& release) {
  char text[48];
  std::snprintf(text, sizeof text, "%d.%d.%d", release.major, release.minor, release.patch);
  return text;
}

// Remembers the name of the first missing function; null if none is missing.
class Functions {
 public:
  explicit Functions(void* library) : library_(library) {}

  template <typename Function>
  void Require(const char* name, Function* function) {
    Take(name, function);
    if (*function == nullptr && missing_ == nullptr) missing_ = name;
  }
  template <typename Function>
  void Take(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(Find(library_, name));
  }
  const char* missing() const { return missing_; }

 private:
  void* const library_;
  const char* missing_ = nullptr;
};

const char* FillIn(void* library, NcclApi* api) {
  Functions functions(library);
  functions.Require("GetUniqueId", &api->GetUniqueId);
  functions.Require("CommInitRank", &api->CommInitRank);
  functions.Require("CommCount", &api->CommCount);
  functions.Require("CommUserRank", &api->CommUserRank);
  functions.Require("CommCuDevice", &api->CommCuDevice);
  functions.Require("CommDestroy", &api->CommDestroy);
  functions.Require("CommAbort", &api->CommAbort);
  functions.Require("CommGetAsyncError", &api->CommGetAsyncError);
  functions.Require("GetErrorString", &api->GetErrorString);
  functions.Require("GroupStart", &api->GroupStart);
  functions.Require("GroupEnd", &api->GroupEnd);
  functions.Require("Send", &api->Send);
  functions.Require("Recv", &api->Recv);
  functions.Require("AllReduce", &api->AllReduce);
  functions.Require("ReduceScatter", &api->ReduceScatter);
  functions.Require("AllGather", &api->AllGather);
  functions.Require("Broadcast", &api->Broadcast);
  functions.Take("GetLastError", &api->GetLastError);
  functions.Take("CommInitRankConfig", &api->CommInitRankConfig);
  functions.Take("CommFinalize", &api->CommFinalize);
  functions.Take("CommRevoke", &api->CommRevoke);
  return functions.missing();
}

std::string FileOf(const void* function) {
  Dl_info info{};
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return kLibrary;
  return info.dli_fname;
}

}  // namespace

std::string NcclApi::Explain(int result) const {
  const char* what = GetErrorString(result);
  std::string text = what == nullptr ? "unknown error" : what;
  const char* last = GetLastError == nullptr ? nullptr : GetLastError(nullptr);
  if (last == nullptr || *last == '\0') return text;
  text += " (";
  for (; *last != '\0'; ++last) text += *last == '\n' ? ' ' : *last;
  while (text.back() == ' ') text.pop_back();
  return text + ")";
}

onebitResult_t FindNccl(const plugin::BaseContext& context, const char* path,
                        std::shared_ptr<const NcclApi>* api) {
  auto found = std::make_shared<NcclApi>();
  // Never closed, because threads of NCCL may be inside.
  void* library = OpenLibrary(path, &found->was_loaded);
  if (library == nullptr) {
    context.Warn("NCCL cannot be opened: %s; install %s, or set ONEBIT_NCCL_LIB to its path",
                 LastDlError(), kLibrary);
    return onebitSystemError;
  }
  Functions(library).Take("GetVersion", &found->GetVersion);
  if (found->GetVersion == nullptr) {
    context.Warn("%s is not NCCL: it has no ncclGetVersion",
                 path == nullptr || *path == '\0' ? kLibrary : path);
    return onebitSystemError;
  }
  found->file = FileOf(reinterpret_cast<const void*>(found->GetVersion));
  const std::string& file = found->file;
  if (found->GetVersion(&found->version) != kSuccess) {
    context.Warn("%s: ncclGetVersion failed", file.c_str());
    return onebitSystemError;
  }
  const Release release = ReleaseOf(found->version);
  found->release = TextOf(release);
  if (found->version < kOldestVersion) {
    context.Warn("%s is NCCL %s, but 2.10 is the oldest that can be used", file.c_str(),
                 found->release.c_str());
    return onebitSystemError;
  }
  if (const char* missing = FillIn(library, found.get()); missing != nullptr) {
    context.Warn("%s, NCCL %s, has no nccl%s", file.c_str(), found->release.c_str(), missing);
    return onebitSystemError;
  }
  char line[512];
  std::snprintf(line, sizeof line, "nccl: NCCL %s of %s", found->release.c_str(), file.c_str());
  context.host().log(onebitLogInfo, line);
  *api = std::move(found);
  return onebitSuccess;
}

onebitResult_t ResultOf(int result) {
  const bool is_known = result >= kSuccess && result <= static_cast<int>(onebitTimeout);
  return is_known ? static_cast<onebitResult_t>(result) : onebitInternalError;
}

}  // namespace onebit::nccl
