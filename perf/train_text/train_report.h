// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The output of a run: text on the terminal, and JSON.
#pragma once

#include <cstdio>
#include <string>

#include "perf/train_text/text_corpus.h"
#include "perf/train_text/train_options.h"
#include "perf/train_text/trainer.h"

namespace onebit::train {

/** Describes the model and the text before the run. */
std::string DescribeRun(const TrainOptions& options, const Corpus& corpus);

/** Summarizes losses and bytes along the run, the held-out loss, bytes and seconds. */
std::string Summarize(const TrainOptions& options, const TrainResult& result);

/** Returns one JSON object; a value that is not finite becomes null. */
std::string ToJson(const TrainOptions& options, const Corpus& corpus, const TrainResult& result);

/** A progress line on stderr, rewritten in place; silent unless stderr is a terminal. */
class ProgressLine {
 public:
  explicit ProgressLine(bool is_wanted);
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /** Cheap: it draws a few times a second at most. Not thread-safe. */
  void Update(int steps_done, int steps, double loss);
  void Clear();

 private:
  bool is_terminal_;
  bool is_drawn_ = false;
  double start_seconds_;
  double last_draw_seconds_ = 0;
};

}  // namespace onebit::train
