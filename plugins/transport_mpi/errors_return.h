// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// ErrorsReturn: makes MPI return error codes on a communicator of the application.
#pragma once

#include <mpi.h>

namespace onebit::mpi {

// While objects for a communicator exist, its error handler is MPI_ERRORS_RETURN; the last one
// restores the previous handler. A handler that the application sets meanwhile is lost. May be used
// on any thread that may call MPI.
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
