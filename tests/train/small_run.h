// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs that take less than a second, for tests of the trainer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "perf/train_text/counter_random.h"
#include "perf/train_text/text_corpus.h"
#include "perf/train_text/train_options.h"
#include "perf/train_text/trainer.h"

namespace onebit::train {

/** Words drawn at random: learnable, and always the same. */
inline Corpus SmallCorpus() {
  constexpr std::array<std::string_view, 6> kWords = {"one ",      "bit ", "per ",
                                                      "element, ", "no ",  "more.\n"};
  const CounterRandom random(3, RandomStream::kBatches, 0);
  Corpus corpus;
  for (uint64_t i = 0; corpus.bytes.size() < 20'000; ++i) {
    const std::string_view word = kWords[random.Below(i, kWords.size())];
    corpus.bytes.insert(corpus.bytes.end(), word.begin(), word.end());
  }
  corpus.train_bytes = corpus.bytes.size() - corpus.bytes.size() / 20;
  return corpus;
}

/** Returns the options of a run of less than a second. */
inline TrainOptions SmallOptions(int ranks) {
  TrainOptions options;
  options.ranks = ranks;
  options.steps = 20;
  options.batch = 8;
  options.warmup_steps = 4;
  options.shape.hidden = {33, 17};  // layers and chunks that end anywhere
  options.block = 1024;
  options.check_replicas = true;
  return options;
}

inline std::vector<double> Losses(const TrainResult& result) {
  std::vector<double> losses;
  for (const StepRecord& step : result.steps) losses.push_back(step.loss);
  return losses;
}

/**
 * Returns options of 0/1 Adam whose last interval is open when the steps are done: a sync in every
 * fourth step from step 11 on.
 */
inline void LocalSteps(TrainOptions& options) {
  options.optimizer = OptimizerKind::kZeroOneAdam;
  options.lr = 1e-3;
  options.steps = 30;
  options.rule.varFreezeStep = 10;
  options.rule.localStepScaler = 1;
  options.rule.localStepClipper = 4;
}

}  // namespace onebit::train
