// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Builds the library's configuration of an optimizer from the command line.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "onebit/optim.h"
#include "perf/common/codec_choice.h"
#include "perf/train_text/train_options.h"

namespace onebit::train {

/** A member of the configuration that only some optimizers have, and its option. */
template <typename T>
struct RuleMember {
  const char* flag;
  T onebitOptimizerConfig_t::*member;
  const char* help;
};

inline constexpr std::array<RuleMember<int64_t>, 5> kZeroOneMembers = {
    {{"--var-freeze-step", &onebitOptimizerConfig_t::varFreezeStep,
      "Step from which the variance is no longer refreshed [a fifth of the steps]"},
     {"--var-update-scaler", &onebitOptimizerConfig_t::varUpdateScaler,
      "Refreshes after which the steps between them double [16]"},
     {"--local-step-scaler", &onebitOptimizerConfig_t::localStepScaler,
      "Steps after which the interval between syncs doubles; unties it from the rate [32678]"},
     {"--local-step-clipper", &onebitOptimizerConfig_t::localStepClipper,
      "Longest interval between syncs [16]"},
     {"--local-step-start", &onebitOptimizerConfig_t::localStepStart,
      "Step before which every step is a sync [--var-freeze-step]"}}};

/**
 * Limits of the layers' ratios in all steps, then of the factor on their averages in compressed
 * steps.
 */
inline constexpr std::array<RuleMember<double>, 2> kLambMembers = {
    {{"--min-coeff", &onebitOptimizerConfig_t::minCoeff, "Least trust ratio [0.01]"},
     {"--max-coeff", &onebitOptimizerConfig_t::maxCoeff, "Greatest trust ratio [10]"}}};
inline constexpr std::array<RuleMember<double>, 4> kCompressedLambMembers = {
    {{"--coeff-beta", &onebitOptimizerConfig_t::coeffBeta,
      "Decay of the average of trust ratios that is frozen [0.9]"},
     {"--factor-min", &onebitOptimizerConfig_t::factorMin, "Least factor on that average [0.5]"},
     {"--factor-max", &onebitOptimizerConfig_t::factorMax, "Greatest factor on it [4]"},
     {"--factor-threshold", &onebitOptimizerConfig_t::factorThreshold,
      "Largest relative change of the factor in a step [0.1]"}}};

/** True if the optimizer compresses its momentum or its steps. */
bool Compresses(OptimizerKind optimizer);
/** Returns true if blocks of what an optimizer compresses restart at each tensor. */
bool HasScalesOfTensors(const TrainOptions& options);
/** Returns true if a compressed allreduce averages gradients for optimizers that do not. */
bool AveragesGradients(const TrainOptions& options);
bool IsLamb(OptimizerKind optimizer);
/** True if each rank has moments of its part of the parameters only. */
bool IsSharded(OptimizerKind optimizer);

/** The compression of the run: of what the optimizer sends, or of gradients; else dense. */
perf::CodecChoice CompressionOf(const TrainOptions& options);
/** Returns the codec of the parameters that a sharded optimizer sends. */
perf::CodecChoice GatherOf(const TrainOptions& options);

/**
 * The default rate: the best of {1e-3, 2e-3, 3e-3} for Adam and of {5e-3, 1e-2, 2e-2, 3e-2} for
 * LAMB, in runs of 500 steps. perf/studies/convergence has the losses, and higher rates of Adam.
 * 1-bit LAMB diverges at the best rate of dense LAMB unless --factor-max is 1.
 */
double DefaultRate(OptimizerKind optimizer);

/**
 * Returns the floor in effect: the given one, or 0.01, with which the tables of
 * perf/studies/convergence were made; 0 for DeepSpeed's variant.
 */
double VarianceFloorOf(const TrainOptions& options);

/** The number that train_text's own optimizers add to denominators, as the library does. */
inline constexpr double kEps = 1e-8;

/** Returns the configuration without segments and compressor. */
onebitOptimizerConfig_t ConfigOf(const TrainOptions& options);
onebitCompressorConfig_t CompressorConfigOf(const TrainOptions& options);

/** Turns "--var-freeze-step" into "var_freeze_step", as reports spell it. */
std::string ReportName(const char* flag);

}  // namespace onebit::train
