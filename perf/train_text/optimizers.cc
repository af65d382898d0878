// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/train_text/optimizers.h"

#include <algorithm>
#include <chrono>

#include "perf/common/comm_stats.h"
#include "perf/common/seconds.h"
#include "perf/common/tool_error.h"
#include "perf/train_text/optimizer_config.h"

namespace onebit::train {

Optimizers::Optimizers(const TrainOptions& options, onebitComm_t comm, const ModelLayout& layout,
                       std::span<float> parameters) {
  if (IsSharded(options.optimizer)) {
    sharded_ = std::make_unique<ShardedAdam>(options, comm, layout.tensors(), parameters);
    return;
  }
  if (options.codec || options.outer) {
    perf::Check(MakeComms(std::span(&alone_, 1)), "onebitCommInitAll");
  }
  if (!options.is_overlapped) {
    AddPart(options, comm, layout.tensors(), parameters);
    return;
  }
  parts_.reserve(layout.layers());
  for (size_t layer = 0; layer < layout.layers(); ++layer) {
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
    // As usual: biases begin at 0, where neither a decay nor a ratio to their norm means anything,
    // and gains at 1, where they are to stay.
    if (tensor.is_vector()) {
      segment.weightDecay = 0;
      segment.flags = onebitSegmentNoTrustRatio;
    }
    segments.push_back(segment);
  }

  onebitOptimizerConfig_t config = ConfigOf(options);
  if (!options.codec) config.compressor = &compressor;
  config.segments = segments.data();
  config.segmentCount = segments.size();

  Part& part = parts_.emplace_back();
  part.options = &options;
  part.comm = comm;
  part.count = end - begin;
  if (AveragesGradients(options)) {
    perf::Check(
        MakeCompressor(part.compressor, comm, part.count, options.gradient_type, &compressor),
        "onebitCompressorCreate");
  }
  perf::Check(MakeOptimizer(part.optimizer, alone_ ? alone_.get() : comm,
                            parameters.subspan(begin, part.count), &config),
              "onebitOptimizerCreate");
}

onebitResult_t Optimizers::Part::Step() {
  uint64_t bytes_sent = 0;
  if (compressor) {
    const onebitResult_t status = Average(&bytes_sent);
    if (status != onebitSuccess) return status;
  }
  const onebitResult_t status = onebitOptimizerStep(
      optimizer.get(), gradients, options->gradient_type, rate, 1.0 / options->gradient_scale(),
      options->max_grad_norm, &result, nullptr);
  if (status == onebitSuccess && compressor) {
    result.stage = onebitStageCompressed;
    result.bytes_sent = bytes_sent;
    average_bytes += bytes_sent;
  }
  return status;
}

// Every rank gets the same average, byte for byte. One that is not finite is skipped by all.
onebitResult_t Optimizers::Part::Average(uint64_t* bytes_sent) {
  const uint64_t before = perf::SentBy(comm).bytes;
  const onebitResult_t status = onebitAllReduce(gradients, gradients, count, options->gradient_type,
                                                onebitAvg, compressor.get(), comm, nullptr);
  *bytes_sent = perf::SentBy(comm).bytes - before;
  return status;
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
  if (sharded_) {
    sharded_->Step(gradients, rate, result);
    return onebitSuccess;
  }
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
  if (sharded_) return sharded_->Stats();
  onebitOptimizerStats_t sum{};
  for (const Part& part : parts_) {
    onebitOptimizerStats_t stats{};
    stats.size = sizeof(stats);
    perf::Check(onebitOptimizerGetStats(part.optimizer.get(), &stats), "onebitOptimizerGetStats");
    stats.bytes_sent += part.average_bytes;
    if (part.compressor) stats.state_bytes += perf::StatsOf(part.compressor.get()).residual_bytes;
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
