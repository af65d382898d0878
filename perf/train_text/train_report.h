// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The output of a run: text on the terminal, and JSON.
#pragma once

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

}  // namespace onebit::train
