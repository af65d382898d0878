// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The kinds of the steps of a run, in the letters of onebit_schedule, so both can be compared.
#pragma once

#include <span>
#include <string>

#include "perf/train_text/train_options.h"
#include "perf/train_text/trainer.h"

namespace onebit::train {

/** One letter per step, from onebitStepPlan_t; g: gradients averaged with --codec. */
std::string StepKinds(const TrainOptions& options, std::span<const StepRecord> steps);

}  // namespace onebit::train
