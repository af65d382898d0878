// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The optimizer of one rank: one for all parameters, or one per layer, which steps while the
// gradients of earlier layers are computed. With a codec of gradients it is a dense optimizer of
// this rank alone, which gets gradients that a compressed allreduce has averaged; with --outer,
// those of this rank. A sharded one is not the library's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "onebit/onebit.hpp"
#include "onebit/optim.h"
#include "perf/train_text/model.h"
#include "perf/train_text/sharded_adam.h"
#include "perf/train_text/train_options.h"

namespace onebit::train {

/** Not thread-safe. Functions that return no result throw perf::ToolError. */
class Optimizers {
 public:
  /**
   * Borrows `comm` and `parameters`. With options.is_overlapped there is one optimizer per layer.
   */
  Optimizers(const TrainOptions& options, onebitComm_t comm, const ModelLayout& layout,
             std::span<float> parameters);

  /** Steps all parameters and blocks. `result` is written on success. */
  onebitResult_t Step(void* gradients, double rate, onebitStepResult_t* result);

  /**
   * Starts the step of a layer, which runs concurrently with the caller. All ranks must start
   * layers in the same order.
   */
  void Start(size_t layer, void* gradients, double rate);
  /**
   * Waits for the steps of all layers. `result` is that of the first layer, with the bytes of all.
   */
  onebitResult_t Finish(onebitStepResult_t* result);
  /** Seconds that steps begun by Start have taken, on the thread where they ran. */
  double started_seconds() const;

  /** Averages the parameters after local steps, in which replicas diverge; blocks. */
  void Sync();

  /** Counters of all layers; step and stage of the first. */
  onebitOptimizerStats_t Stats() const;
  /** Null unless the optimizer is sharded. */
  const ShardedAdam* sharded() const { return sharded_.get(); }
  /**
   * Requires a single optimizer. `source` is a rank of `comm` that has the results of the last
   * step.
   */
  int Rebind(onebitComm_t comm);

 private:
  /** One layer's optimizer, and the step it has started. */
  struct Part {
    const TrainOptions* options = nullptr;
    onebitComm_t comm = nullptr;
    size_t count = 0;             // parameters
    UniqueCompressor compressor;  // of gradients; none: the optimizer averages them
    UniqueOptimizer optimizer;
    void* gradients = nullptr;
    double rate = 0;
    onebitStepResult_t result = ONEBIT_STEP_RESULT_INIT;
    uint64_t average_bytes = 0;  // sent by averages with the compressor
    double seconds = 0;

    onebitResult_t Step();
    onebitResult_t Average(uint64_t* bytes_sent);
    static onebitResult_t StepOnStream(void* part);
  };

  void AddPart(const TrainOptions& options, onebitComm_t comm, std::span<const Tensor> tensors,
               std::span<float> parameters);

  std::unique_ptr<ShardedAdam> sharded_;  // in place of parts
  UniqueComm alone_;  // with a codec or --outer: what optimizers are on, a communicator of one rank
  std::vector<Part> parts_;  // never grows: the stream holds the addresses
  UniqueStream stream_;      // last: its destructor waits for work on the others
};

}  // namespace onebit::train
