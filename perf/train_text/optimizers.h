// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The optimizer of one rank: one for all parameters, or one per layer that goes on while the
// gradients of the layers before it are computed.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "onebit/onebit.hpp"
#include "onebit/optim.h"
#include "perf/train_text/model.h"
#include "perf/train_text/options.h"

namespace onebit::train {

/** One thread at a time. Functions that return no result throw OnebitError. */
class Optimizers {
 public:
  /** `comm` and `parameters` are borrowed. With options.is_overlapped there is one per layer. */
  Optimizers(const TrainOptions& options, onebitComm_t comm, const ModelLayout& layout,
             std::span<float> parameters);

  /** The step of all parameters; blocks. `result` is written on success. */
  onebitResult_t Step(void* gradients, double rate, onebitStepResult_t* result);

  /** Starts the step of a layer, which goes on beside the caller. In the same order on all ranks.
   */
  void Start(size_t layer, void* gradients, double rate);
  /** Ends the steps of all layers. `result` is that of the first layer, with the bytes of all. */
  onebitResult_t Finish(onebitStepResult_t* result);
  /** What the steps that Start began have taken, on the thread where they ran. */
  double started_seconds() const;

  /** Makes ranks agree on the parameters where local steps have taken them apart; blocks. */
  void Sync();

  /** Counters of all layers; step and stage of the first. */
  onebitOptimizerStats_t Stats() const;
  /** Without layers only. A rank of `comm` that has the results of the last step. */
  int Rebind(onebitComm_t comm);

 private:
  /** One of them, and the step that was started. */
  struct Part {
    const TrainOptions* options = nullptr;
    UniqueOptimizer optimizer;
    void* gradients = nullptr;
    double rate = 0;
    onebitStepResult_t result = ONEBIT_STEP_RESULT_INIT;
    double seconds = 0;

    onebitResult_t Step();
    static onebitResult_t StepOnStream(void* part);
  };

  void AddPart(const TrainOptions& options, onebitComm_t comm, std::span<const Tensor> tensors,
               std::span<float> parameters);

  std::vector<Part> parts_;  // as many as there are from the start: the stream has their addresses
  UniqueStream stream_;      // last: its end waits for what it does with the others
};

}  // namespace onebit::train
