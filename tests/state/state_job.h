// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The ranks of a communicator with one tensor whose state is saved and loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <vector>

#include "onebit/onebit.h"
#include "tests/support/comm_group.h"
#include "tests/support/residuals.h"

namespace onebit::testing {

using Blob = std::vector<std::byte>;

// The configuration of a tensor.
struct StateSubject {
  const char* name;
  size_t count = 1000;
  onebitMode_t mode = onebitModeEf;
  onebitRedOp_t op = onebitAvg;
  onebitDataType_t residual_type = onebitFloat32;
  bool is_transactional = true;
  bool has_server_residual = true;
  bool is_one_exchange = false;
  int block = 64;
  onebitCodec_t codec = onebitCodecSign;
  int hops = ONEBIT_UNDEF_INT;  // of sparse codecs
  int chunk_alignment = 64;
  uint64_t regroup_timeout_ms = 20'000;
};
std::ostream& operator<<(std::ostream& out, const StateSubject& subject);

// The debt of later results to one element: the mean of the worker residuals plus the server
// residual, times the number of ranks for sums. `magnitude` is the same for absolute values.
struct Pending {
  double sum = 0;
  double magnitude = 0;
};

class StateJob {
 public:
  // Inputs begin with those of call `first_call`. A null `transport` is local.
  StateJob(int ranks, const StateSubject& subject, int first_call = 0,
           const Transport* transport = nullptr, uint64_t timeout_ms = 20'000);

  onebitCompressor_t compressor(int rank) const {
    return compressors_[static_cast<size_t>(rank)].get();
  }
  Residuals residuals(int rank) const { return ResidualsOf(compressor(rank)); }
  std::vector<Pending> pending() const;
  // Output of the last call.
  const std::vector<float>& output() const { return outputs_[0]; }

  // Makes the next call. Outputs must be equal on all ranks.
  std::vector<Outcome> Call();
  void CallsSucceed(int calls);
  // Goes on to the inputs of the call after the next one.
  void SkipCall() { ++calls_; }

  // Exports the state on every rank; expects success.
  std::vector<Blob> Export(onebitStateKind_t kind) const;
  std::vector<Outcome> TryExport(onebitStateKind_t kind) const;
  void Import(const std::vector<Blob>& states) const;

  void DestroyComm(int rank) { comms_[static_cast<size_t>(rank)].reset(); }
  void DestroyComms() { comms_.clear(); }

 private:
  std::vector<Outcome> Each(const std::function<onebitResult_t(int rank)>& call) const;
  std::vector<Outcome> ExportInto(onebitStateKind_t kind, std::vector<Blob>* states) const;

  const StateSubject subject_;
  std::vector<UniqueCompressor> compressors_;
  std::vector<UniqueComm> comms_;
  std::vector<std::vector<float>> outputs_;
  int calls_;
};

// Calls onebitCompressorImport on this thread.
Outcome ImportHere(onebitCompressor_t compressor, const Blob& state);

}  // namespace onebit::testing
