// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The few functions of NCCL that an application needs to make a communicator, found by name, so
// that neither its header nor its library is needed to build.
#pragma once

namespace onebit::testing {

class NcclLibrary {
 public:
  struct Id {
    char internal[128];
  };
  using Comm = void*;

  // The one that ONEBIT_NCCL_LIB names, else libnccl.so.2. Throws if there is none.
  NcclLibrary();

  int version() const;
  Id NewId() const;
  // Of the current device; collective.
  Comm Join(int ranks, const Id& id, int rank) const;
  void Destroy(Comm comm) const;

 private:
  template <class Function>
  Function* Find(const char* name) const;
  void Check(int result, const char* what) const;

  void* library_;
};

}  // namespace onebit::testing
