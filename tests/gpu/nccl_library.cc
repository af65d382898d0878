// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace onebit::testing {

NcclLibrary::NcclLibrary() {
  const char* path = std::getenv("ONEBIT_NCCL_LIB");
  if (path == nullptr || *path == '\0') path = "libnccl.so.2";
  library_ = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) throw std::runtime_error(dlerror());
}

template <class Function>
Function* NcclLibrary::Find(const char* name) const {
  auto* const function = reinterpret_cast<Function*>(dlsym(library_, name));
  if (function == nullptr) throw std::runtime_error(std::string("NCCL lacks ") + name);
  return function;
}

void NcclLibrary::Check(int result, const char* what) const {
  if (result == 0) return;
  auto* const text_of = Find<const char*(int)>("ncclGetErrorString");
  throw std::runtime_error(std::string(what) + ": " + text_of(result));
}

int NcclLibrary::version() const {
  int version = 0;
  Check(Find<int(int*)>("ncclGetVersion")(&version), "ncclGetVersion");
  return version;
}

NcclLibrary::Id NcclLibrary::NewId() const {
  Id id = {};
  Check(Find<int(Id*)>("ncclGetUniqueId")(&id), "ncclGetUniqueId");
  return id;
}

NcclLibrary::Comm NcclLibrary::Join(int ranks, const Id& id, int rank) const {
  Comm comm = nullptr;
  Check(Find<int(Comm*, int, Id, int)>("ncclCommInitRank")(&comm, ranks, id, rank),
        "ncclCommInitRank");
  return comm;
}

void NcclLibrary::Destroy(Comm comm) const {
  Check(Find<int(Comm)>("ncclCommDestroy")(comm), "ncclCommDestroy");
}

}  // namespace onebit::testing
