// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// ErrorsReturn: errors of MPI come back as codes, on a communicator that is the application's.
#pragma once

#include <mpi.h>

namespace onebit::mpi {

// While some exist for a communicator its error handler is MPI_ERRORS_RETURN; with the last one the
// handler of before is back. An application that sets one meanwhile loses it. Any thread that may
// call MPI.
class ErrorsReturn {
 public:
  explicit ErrorsReturn(MPI_Comm comm);
  ~ErrorsReturn();
  ErrorsReturn(const ErrorsReturn&) = delete;
  ErrorsReturn& operator=(const ErrorsReturn&) = delete;

 private:
  const MPI_Comm comm_;
};

}  // namespace onebit::mpi
