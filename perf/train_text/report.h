// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What a run says: to people on the terminal, and to scripts as JSON.
#pragma once

#include <cstdio>
#include <string>

#include "perf/train_text/options.h"
#include "perf/train_text/text_corpus.h"
#include "perf/train_text/trainer.h"

namespace onebit::train {

/** What is going to be trained on what. */
std::string DescribeRun(const TrainOptions& options, const Corpus& corpus);

/** Losses and bytes along the run, the held-out loss, bytes and seconds. */
std::string Summarize(const TrainOptions& options, const TrainResult& result);

/** One JSON object; a value that is not finite becomes null. */
std::string ToJson(const TrainOptions& options, const Corpus& corpus, const TrainResult& result);

/** One line on stderr that is rewritten in place; silent unless stderr is a terminal. */
class ProgressLine {
 public:
  explicit ProgressLine(bool is_wanted);
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /** Cheap: draws a few times a second at most. One thread at a time. */
  void Update(int steps_done, int steps, double loss);
  void Clear();

 private:
  bool is_terminal_;
  bool is_drawn_ = false;
  double start_seconds_;
  double last_draw_seconds_ = 0;
};

}  // namespace onebit::train
