// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Group: ranks of an application's MPI communicator, on a duplicate of it.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "plugins/transport_mpi/mpi_context.h"

namespace onebit::mpi {

struct Group {
  const Context* context = nullptr;
  MPI_Comm comm = MPI_COMM_NULL;  // null once an endpoint has taken it
  int rank = 0;
  int ranks = 1;

  Group() = default;
  // Ends the communicator unless an endpoint has taken it.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
};

// `native` points to an MPI_Comm; null means MPI_COMM_WORLD. Throws std::bad_alloc.
onebitResult_t Adopt(const Context& context, const void* native, size_t native_bytes,
                     uint64_t timeout_ms, std::shared_ptr<Group>* group);
onebitResult_t Broadcast(Group* group, void* bytes, size_t count, uint64_t timeout_ms);

}  // namespace onebit::mpi
