// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Thread levels of MPI, and calls after its end.
#include <cstdlib>
#include <thread>

#include "tests/mpi/application_rank.h"

namespace onebit::testing {
namespace {

onebitComm_t MakeComm() {
  onebitComm_t comm = nullptr;
  Check(onebitCommInitMpi(&comm, MPI_COMM_WORLD, nullptr), "onebitCommInitMpi");
  return comm;
}

}  // namespace

// MPI_THREAD_FUNNELED.
void RunOnMainThreadOnly() {
  const onebitComm_t comm = MakeComm();
  CheckAllReduce(comm);
  MPI_Barrier(MPI_COMM_WORLD);
  std::thread([comm] {
    onebitComm_t other = nullptr;
    Expect(onebitCommInitMpi(&other, MPI_COMM_WORLD, nullptr) == onebitInvalidUsage,
           "another thread may make a communicator below MPI_THREAD_SERIALIZED");
    Expect(LastErrorHas("MPI_THREAD_SERIALIZED"), "the error does not name the level needed");
    float value = 1;
    Expect(onebitAllReduce(&value, &value, 1, onebitFloat32, onebitSum, nullptr, comm, nullptr) ==
               onebitInvalidUsage,
           "another thread may make a call below MPI_THREAD_SERIALIZED");
    Expect(LastErrorHas("MPI_THREAD_SERIALIZED"), "the error does not name the level needed");
  }).join();
  CheckAllReduce(comm);  // the communicator is still usable
  Check(onebitCommDestroy(comm), "onebitCommDestroy");
}

// MPI_THREAD_MULTIPLE: two threads with a communicator each. The application's error handlers must
// stay.
void RunOnAnyThread() {
  MPI_Comm second = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &second);
  const auto use = [](MPI_Comm native) {
    onebitComm_t comm = nullptr;
    Check(onebitCommInitMpi(&comm, native, nullptr), "onebitCommInitMpi");
    for (int i = 0; i < 20; ++i) CheckAllReduce(comm);
    Check(onebitCommDestroy(comm), "onebitCommDestroy");
  };
  std::thread thread(use, second);
  use(MPI_COMM_WORLD);
  thread.join();
  for (const MPI_Comm comm : {MPI_COMM_WORLD, second}) {
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Comm_get_errhandler(comm, &handler);
    Expect(handler == MPI_ERRORS_ARE_FATAL, "the error handler is another one");
    MPI_Errhandler_free(&handler);
  }
  MPI_Comm_free(&second);
}

void RunAfterFinalize() {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  const onebitComm_t comm = MakeComm();
  CheckAllReduce(comm);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  float value = 1;
  const onebitResult_t result =
      onebitAllReduce(&value, &value, 1, onebitFloat32, onebitSum, nullptr, comm, nullptr);
  if (result == onebitSuccess || !LastErrorHas("MPI_Finalize")) std::abort();
  if (onebitCommDestroy(comm) != onebitSuccess) std::abort();
  onebitComm_t other = nullptr;
  if (onebitCommInitFrom(&other, "mpi", nullptr, 0, nullptr) != onebitInvalidUsage) std::abort();
  if (!LastErrorHas("MPI_Finalize")) std::abort();
}

}  // namespace onebit::testing
