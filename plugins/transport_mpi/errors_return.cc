// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The error handlers to restore, each with the number of its users.
#include "plugins/transport_mpi/errors_return.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace onebit::mpi {
namespace {

struct Replaced {
  MPI_Comm comm;
  MPI_Errhandler before;  // null: MPI did not say
  int users;
};

// Never destroyed: communicators are created and closed during exit, too.
struct Registry {
  std::mutex mutex;
  std::vector<Replaced> replaced;  // guarded by mutex

  auto Find(MPI_Comm comm) {
    return std::find_if(replaced.begin(), replaced.end(),
                        [comm](const Replaced& one) { return one.comm == comm; });
  }
};

Registry& TheRegistry() {
  static auto* registry = new Registry;
  return *registry;
}

}  // namespace

ErrorsReturn::ErrorsReturn(MPI_Comm comm) : comm_(comm) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  if (const auto found = registry.Find(comm); found != registry.replaced.end()) {
    ++found->users;
    return;
  }
  Replaced one{.comm = comm, .before = MPI_ERRHANDLER_NULL, .users = 1};
  registry.replaced.push_back(one);
  if (MPI_Comm_get_errhandler(comm, &one.before) != MPI_SUCCESS) return;
  if (MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN) != MPI_SUCCESS) return;
  registry.replaced.back().before = one.before;
}

ErrorsReturn::~ErrorsReturn() {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto found = registry.Find(comm_);
  if (--found->users != 0) return;
  if (found->before != MPI_ERRHANDLER_NULL) {
    MPI_Comm_set_errhandler(comm_, found->before);
    MPI_Errhandler_free(&found->before);
  }
  registry.replaced.erase(found);
}

}  // namespace onebit::mpi
