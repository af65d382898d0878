// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// NativeAllreduce: MPI's own fp32 allreduce, in pieces through memory of the library.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <memory>

namespace onebit::mpi {

// MPI_Iallreduce cannot be cancelled, so it works on copies. Two pieces are in use at a time: one
// is copied while the other travels. One allreduce at a time, one thread at a time.
class NativeAllreduce {
 public:
  // Throws std::bad_alloc.
  void Reserve();

  struct Job {
    MPI_Comm comm = MPI_COMM_NULL;
    const float* send = nullptr;
    float* recv = nullptr;
    size_t count = 0;
    float divisor = 1;  // divides the sum
  };
  // False if the previous one has not ended, or MPI still works on it.
  bool Start(const Job& job);
  // Completes at most one piece. True if it completed one and was not cancelled, or if the
  // allreduce has failed.
  bool Progress();
  // Elements of the last started allreduce that have their results.
  size_t finished() const { return finished_; }
  // MPI's code of the last allreduce that ended.
  int code() const { return code_; }
  // Ends the allreduce: the caller's memory is not touched again.
  void Cancel() { is_running_ = false; }
  // True while MPI works on a piece.
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
  size_t oldest_ = 0;    // piece; pieces end in the order they were started
};

}  // namespace onebit::mpi
