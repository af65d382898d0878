// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// NativeAllreduce: MPI's own allreduce of fp32, in pieces through memory of the library.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <memory>

namespace onebit::mpi {

// MPI_Iallreduce cannot be cancelled, so it works on copies: of two pieces at a time, while one of
// them is copied the other one travels. One allreduce at a time, one thread at a time.
class NativeAllreduce {
 public:
  // Throws std::bad_alloc.
  void Reserve();

  struct Job {
    MPI_Comm comm = MPI_COMM_NULL;
    const float* send = nullptr;
    float* recv = nullptr;
    size_t count = 0;
    float divisor = 1;  // of the sum
  };
  // False: the one before has not ended, or is still in MPI.
  bool Start(const Job& job);
  // Ends one piece at most. True if it has and is not cancelled, or if the allreduce has failed.
  bool Progress();
  bool is_running() const { return is_running_; }
  // Of the one that was started last: elements that have their results.
  size_t finished() const { return finished_; }
  // Of the last one that ended: MPI's code.
  int code() const { return code_; }
  // Ends it: the caller's memory is not touched again.
  void Cancel() { is_running_ = false; }
  // Whether MPI still works on a piece.
  bool is_in_mpi() const;

 private:
  struct Piece {
    std::unique_ptr<float[]> values;
    MPI_Request request = MPI_REQUEST_NULL;
    size_t first = 0;
    size_t count = 0;
  };

  int StartPiece(Piece* piece);
  void Fail(int code);

  std::array<Piece, 2> pieces_;
  Job job_;
  bool is_running_ = false;
  int code_ = MPI_SUCCESS;
  size_t started_ = 0;   // elements
  size_t finished_ = 0;  // elements
  size_t oldest_ = 0;    // piece: they end in the order they were started
};

}  // namespace onebit::mpi
