// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One configuration of a compressed allreduce, for the library and for the scalar model alike.
#pragma once

#include <cstdint>
#include <ostream>
#include <random>
#include <span>
#include <vector>

#include "onebit/onebit.h"
#include "perf/common/allreduce_model.h"
#include "tests/support/comm_group.h"
#include "tests/support/tensor.h"

namespace onebit::testing {

struct AllReduceCase {
  kernels::reference::AllReduceConfig model;
  bool is_in_place = false;
  size_t offset_elements = 0;  // of the buffers behind a cache line

  kernels::DataType type() const { return model.type; }
  onebitRedOp_t op() const { return model.is_sum ? onebitSum : onebitAvg; }
  // Points into this case: valid while it lives.
  onebitCompressorConfig_t config() const;
};
std::ostream& operator<<(std::ostream& out, const AllReduceCase& c);

// Every option at random, ranks and count as given.
AllReduceCase RandomCase(size_t ranks, size_t count, std::mt19937& random);

// Inputs of some calls and what the model makes of them.
struct ModelRun {
  struct Call {
    std::vector<Tensor> inputs;  // by rank
    Tensor output;
  };
  std::vector<Call> calls;
  std::vector<std::vector<float>> worker_residuals;  // by rank, after the last call
  std::vector<float> server_residual;                // of all chunks
};
ModelRun RunModel(const AllReduceCase& c, size_t calls, std::mt19937& random);

// Makes the calls of `run` on `group` and expects, on every rank, the model's bytes: outputs of all
// calls, and the residuals at the end.
void ExpectModelRun(CommGroup& group, const AllReduceCase& c, const ModelRun& run);

}  // namespace onebit::testing
