// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// MPI_Comm_idup and MPI_Ibcast with a deadline.
#include "plugins/transport_mpi/mpi_group.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "plugins/transport_mpi/errors_return.h"
#include "plugins/transport_mpi/mpi_process.h"
#include "plugins/transport_mpi/unused_comm.h"
#include "wait/backoff.h"

namespace onebit::mpi {
namespace {

using Clock = std::chrono::steady_clock;

// Waits for an operation that cannot be cancelled: after a time-out its memory is leaked.
onebitResult_t Await(const plugin::BaseContext& context, const char* what, MPI_Request* request,
                     uint64_t timeout_ms) {
  const PollDeadline deadline = DeadlineAfter(timeout_ms);
  for (Backoff backoff;; backoff.Pause()) {
    int is_done = 0;
    const int code = MPI_Test(request, &is_done, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) {
      context.Warn("%s failed: %s", what, ErrorText(code).c_str());
      return onebitSystemError;
    }
    if (is_done != 0) return onebitSuccess;
    if (Clock::now() >= deadline) {
      MpiProcess::Get().SetBroken();
      context.Warn("%s: not all ranks called it within %llu ms", what,
                   static_cast<unsigned long long>(timeout_ms));
      return onebitTimeout;
    }
  }
}

}  // namespace

Group::~Group() {
  if (comm == MPI_COMM_NULL) return;
  EndUnused(comm, ranks, *context);
}

onebitResult_t Adopt(const Context& context, const void* native, size_t native_bytes,
                     uint64_t timeout_ms, std::shared_ptr<Group>* group) {
  const onebitResult_t check = MpiProcess::Get().CheckThread(context);
  if (check != onebitSuccess) return check;
  MPI_Comm given = MPI_COMM_WORLD;
  if (native != nullptr) {
    if (native_bytes != sizeof given) {
      context.Warn(
          "an MPI_Comm has %zu bytes here, not %zu: the program was compiled for another MPI",
          sizeof given, native_bytes);
      return onebitInvalidArgument;
    }
    std::memcpy(&given, native, sizeof given);
  }
  if (given == MPI_COMM_NULL) {
    context.Warn("the communicator is MPI_COMM_NULL");
    return onebitInvalidArgument;
  }
  const ErrorsReturn errors_return(given);
  int is_inter = 0;
  if (const int code = MPI_Comm_test_inter(given, &is_inter); code != MPI_SUCCESS) {
    context.Warn("MPI_Comm_test_inter failed: %s", ErrorText(code).c_str());
    return onebitInvalidArgument;
  }
  if (is_inter != 0) {
    context.Warn("the communicator is an intercommunicator, whose ranks are two groups");
    return onebitInvalidArgument;
  }
  // MPI may still write to this after a time-out, so it is on the heap, and then leaked.
  auto duplicate = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  auto adopted = std::make_shared<Group>();
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Comm_idup(given, duplicate.get(), &request);
  if (code != MPI_SUCCESS) {
    context.Warn("MPI_Comm_idup failed: %s", ErrorText(code).c_str());
    return onebitSystemError;
  }
  const onebitResult_t result = Await(context, "MPI_Comm_idup", &request, timeout_ms);
  if (result != onebitSuccess) {
    static_cast<void>(duplicate.release());
    return result;
  }
  adopted->context = &context;
  adopted->comm = *duplicate;
  int asked = MPI_Comm_set_errhandler(adopted->comm, MPI_ERRORS_RETURN);
  if (asked == MPI_SUCCESS) asked = MPI_Comm_rank(adopted->comm, &adopted->rank);
  if (asked == MPI_SUCCESS) asked = MPI_Comm_size(adopted->comm, &adopted->ranks);
  if (asked != MPI_SUCCESS) {
    adopted->comm = MPI_COMM_NULL;  // a communicator with unknown ranks cannot be ended
    MpiProcess::Get().SetBroken();
    context.Warn("a duplicate of the communicator cannot be used: %s", ErrorText(asked).c_str());
    return onebitSystemError;
  }
  *group = std::move(adopted);
  return onebitSuccess;
}

onebitResult_t Broadcast(Group* group, void* bytes, size_t count, uint64_t timeout_ms) {
  const plugin::BaseContext& context = *group->context;
  const onebitResult_t check = MpiProcess::Get().CheckThread(context);
  if (check != onebitSuccess) return check;
  if (group->comm == MPI_COMM_NULL || count > 1u << 20) return onebitInvalidArgument;
  auto copy = std::make_unique_for_overwrite<std::byte[]>(count);
  std::memcpy(copy.get(), bytes, count);
  MPI_Request request = MPI_REQUEST_NULL;
  const int code =
      MPI_Ibcast(copy.get(), static_cast<int>(count), MPI_BYTE, 0, group->comm, &request);
  if (code != MPI_SUCCESS) {
    context.Warn("MPI_Ibcast failed: %s", ErrorText(code).c_str());
    return onebitSystemError;
  }
  const onebitResult_t result = Await(context, "MPI_Ibcast", &request, timeout_ms);
  if (result != onebitSuccess) {
    static_cast<void>(copy.release());  // MPI may still use it
    group->comm = MPI_COMM_NULL;
    return result;
  }
  std::memcpy(bytes, copy.get(), count);
  return onebitSuccess;
}

}  // namespace onebit::mpi
