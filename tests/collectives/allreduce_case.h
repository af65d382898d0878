// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One configuration of a compressed allreduce, for the library and for the scalar model.
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
  model::AllReduceConfig model;
  bool is_in_place = false;
  size_t offset_elements = 0;  // of the buffers, from a cache line

  kernels::DataType type() const { return model.type; }
  onebitRedOp_t op() const { return model.is_sum ? onebitSum : onebitAvg; }
  // Points into this case, which must outlive it.
  onebitCompressorConfig_t config() const;
};
std::ostream& operator<<(std::ostream& out, const AllReduceCase& c);

// The hosts of ranks for a model.
model::HostLayout LayoutOf(const HostMap& hosts);

// Draws every option at random, for these numbers of ranks and elements.
AllReduceCase RandomCase(size_t ranks, size_t count, std::mt19937& random);

// Inputs of some calls, and the model's results.
struct ModelRun {
  struct Call {
    std::vector<Tensor> inputs;  // by rank
    Tensor output;
  };
  std::vector<Call> calls;
  std::vector<std::vector<float>> worker_residuals;  // by rank or host, after the last call
  std::vector<float> server_residual;                // of all chunks
};
ModelRun RunModel(const AllReduceCase& c, size_t calls, std::mt19937& random);

// Makes the calls of `run` on `group` and expects the model's bytes on every rank: the outputs of
// all calls, and the final residuals.
void ExpectModelRun(CommGroup& group, const AllReduceCase& c, const ModelRun& run);

}  // namespace onebit::testing
