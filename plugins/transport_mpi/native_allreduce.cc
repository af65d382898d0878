// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Splits an allreduce into pieces.
#include "plugins/transport_mpi/native_allreduce.h"

#include <algorithm>
#include <cstring>

namespace onebit::mpi {
namespace {

constexpr size_t kPieceElements = 256 * 1024;

}  // namespace

void NativeAllreduce::Reserve() {
  for (Piece& piece : pieces_) {
    piece.values = std::make_unique_for_overwrite<float[]>(kPieceElements);
  }
}

bool NativeAllreduce::is_in_mpi() const {
  return pieces_[0].request != MPI_REQUEST_NULL || pieces_[1].request != MPI_REQUEST_NULL;
}

bool NativeAllreduce::Start(const Job& job) {
  if (is_running_ || is_in_mpi()) return false;
  job_ = job;
  started_ = finished_ = oldest_ = 0;
  code_ = MPI_SUCCESS;
  is_running_ = job.count != 0;
  for (Piece& piece : pieces_) {
    if (const int code = StartPiece(&piece); code != MPI_SUCCESS) Fail(code);
  }
  return true;
}

int NativeAllreduce::StartPiece(Piece* piece) {
  if (!is_running_ || started_ == job_.count) return MPI_SUCCESS;
  piece->first = started_;
  piece->count = std::min(kPieceElements, job_.count - started_);
  started_ += piece->count;
  std::memcpy(piece->values.get(), job_.send + piece->first, piece->count * sizeof(float));
  const int code = MPI_Iallreduce(MPI_IN_PLACE, piece->values.get(), static_cast<int>(piece->count),
                                  MPI_FLOAT, MPI_SUM, job_.comm, &piece->request);
  if (code != MPI_SUCCESS) piece->request = MPI_REQUEST_NULL;
  return code;
}

void NativeAllreduce::Fail(int code) {
  code_ = code;
  is_running_ = false;
}

bool NativeAllreduce::Progress() {
  while (is_in_mpi()) {
    Piece& piece = pieces_[oldest_];
    int is_done = 0;
    if (const int code = MPI_Test(&piece.request, &is_done, MPI_STATUS_IGNORE);
        code != MPI_SUCCESS) {
      piece.request = MPI_REQUEST_NULL;
      const bool is_news = is_running_;
      Fail(code);
      return is_news;
    }
    if (is_done == 0) return false;
    oldest_ = 1 - oldest_;
    if (!is_running_) continue;
    const float* const sum = piece.values.get();
    float* const out = job_.recv + piece.first;
    for (size_t i = 0; i < piece.count; ++i) out[i] = sum[i] / job_.divisor;
    finished_ += piece.count;
    if (finished_ == job_.count) {
      is_running_ = false;
    } else if (const int code = StartPiece(&piece); code != MPI_SUCCESS) {
      Fail(code);
    }
    return true;
  }
  return false;
}

}  // namespace onebit::mpi
