// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The few NCCL functions that an application needs to create a communicator, found by name, so that
// building needs neither NCCL's header nor its library.
#pragma once

namespace onebit::testing {

class NcclLibrary {
 public:
  struct Id {
    char internal[128];
  };
  using Comm = void*;

  // Loads the library that ONEBIT_NCCL_LIB names, or libnccl.so.2. Throws if there is none.
  NcclLibrary();

  int version() const;
  Id NewId() const;
  // Creates a communicator on the current device. Collective.
  Comm Join(int ranks, const Id& id, int rank) const;
  void Destroy(Comm comm) const;

 private:
  template <class Function>
  Function* Find(const char* name) const;
  void Check(int result, const char* what) const;

  void* library_;
};

}  // namespace onebit::testing
