// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What the steps of a run sent, in the letters of onebit_schedule, so that both can be compared.
#pragma once

#include <span>
#include <string>

#include "perf/train_text/options.h"
#include "perf/train_text/trainer.h"

namespace onebit::train {

/** One letter per step, as onebitStepPlan_t has them. */
std::string StepKinds(const TrainOptions& options, std::span<const StepRecord> steps);

}  // namespace onebit::train
