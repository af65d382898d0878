// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/train_text/optimizers.h"

#include <algorithm>
#include <chrono>

#include "perf/common/seconds.h"
#include "perf/common/tool_error.h"
#include "perf/train_text/optimizer_config.h"

namespace onebit::train {

Optimizers::Optimizers(const TrainOptions& options, onebitComm_t comm, const ModelLayout& layout,
                       std::span<float> parameters) {
  if (!options.is_overlapped) {
    AddPart(options, comm, layout.tensors, parameters);
    return;
  }
  parts_.reserve(ModelLayout::kLayers);
  for (size_t layer = 0; layer < ModelLayout::kLayers; ++layer) {
    AddPart(options, comm, layout.LayerTensors(layer), parameters);
  }
  perf::Check(MakeStream(stream_), "onebitStreamCreate");
}

void Optimizers::AddPart(const TrainOptions& options, onebitComm_t comm,
                         std::span<const Tensor> tensors, std::span<float> parameters) {
  const onebitCompressorConfig_t compressor = CompressorConfigOf(options);
  const size_t begin = tensors.front().offset;
  const size_t end = tensors.back().offset + tensors.back().count();
  std::vector<onebitSegment_t> segments;
  for (const Tensor& tensor : tensors) {
    onebitSegment_t segment = ONEBIT_SEGMENT_INIT;
    segment.offset = tensor.offset - begin;
    segment.count = tensor.count();
    // As usual: biases begin at 0, where neither a decay nor a ratio to their norm means anything.
    if (tensor.is_bias()) {
      segment.weightDecay = 0;
      segment.flags = onebitSegmentNoTrustRatio;
    }
    segments.push_back(segment);
  }

  onebitOptimizerConfig_t config = ConfigOf(options);
  config.compressor = &compressor;
  config.segments = segments.data();
  config.segmentCount = segments.size();

  Part& part = parts_.emplace_back();
  part.options = &options;
  perf::Check(MakeOptimizer(part.optimizer, comm, parameters.subspan(begin, end - begin), &config),
              "onebitOptimizerCreate");
}

onebitResult_t Optimizers::Part::Step() {
  return onebitOptimizerStep(optimizer.get(), gradients, options->gradient_type, rate,
                             1.0 / options->gradient_scale(), options->max_grad_norm, &result,
                             nullptr);
}

onebitResult_t Optimizers::Part::StepOnStream(void* part) {
  using Clock = std::chrono::steady_clock;
  auto& self = *static_cast<Part*>(part);
  const Clock::time_point start = Clock::now();
  const onebitResult_t result = self.Step();
  self.seconds += perf::SecondsSince(start);
  return result;
}

onebitResult_t Optimizers::Step(void* gradients, double rate, onebitStepResult_t* result) {
  Part& part = parts_.front();
  part.gradients = gradients;
  part.rate = rate;
  const onebitResult_t status = part.Step();
  *result = part.result;
  return status;
}

void Optimizers::Start(size_t layer, void* gradients, double rate) {
  Part& part = parts_[layer];
  part.gradients = gradients;
  part.rate = rate;
  perf::Check(onebitStreamLaunchHostFunc(stream_.get(), Part::StepOnStream, &part),
              "onebitStreamLaunchHostFunc");
}

onebitResult_t Optimizers::Finish(onebitStepResult_t* result) {
  const onebitResult_t status = onebitStreamSynchronize(stream_.get());
  if (status != onebitSuccess) return status;
  *result = parts_.front().result;
  for (const Part& part : std::span(parts_).subspan(1)) {
    result->bytes_sent += part.result.bytes_sent;
    result->skipped = std::max(result->skipped, part.result.skipped);
  }
  return status;
}

double Optimizers::started_seconds() const {
  double seconds = 0;
  for (const Part& part : parts_) seconds += part.seconds;
  return seconds;
}

void Optimizers::Sync() {
  for (const Part& part : parts_) {
    perf::Check(onebitOptimizerSync(part.optimizer.get()), "onebitOptimizerSync");
  }
}

onebitOptimizerStats_t Optimizers::Stats() const {
  onebitOptimizerStats_t sum{};
  for (const Part& part : parts_) {
    onebitOptimizerStats_t stats{};
    stats.size = sizeof(stats);
    perf::Check(onebitOptimizerGetStats(part.optimizer.get(), &stats), "onebitOptimizerGetStats");
    if (&part == &parts_.front()) {
      sum = stats;
      continue;
    }
    sum.skipped = std::max(sum.skipped, stats.skipped);
    sum.bytes_sent += stats.bytes_sent;
    sum.state_bytes += stats.state_bytes;
    sum.lost_elements += stats.lost_elements;
  }
  return sum;
}

int Optimizers::Rebind(onebitComm_t comm) {
  int source = 0;
  perf::Check(onebitOptimizerRebind(parts_.front().optimizer.get(), comm, &source),
              "onebitOptimizerRebind");
  return source;
}

}  // namespace onebit::train
