// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/placed_optimizer.h"
#include "tests/support/exported_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

namespace onebit::testing {
namespace {

template <typename T>
std::vector<std::byte> BytesOf(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

std::vector<float> FloatsOf(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

PlacedBuffer::PlacedBuffer(Memories memories, std::vector<std::byte> content)
    : host_(std::move(content)) {
  if (memories == Memories::kDevice) device_.emplace(host_);
}

void* PlacedBuffer::data() { return device_ ? device_->data() : host_.data(); }

std::vector<std::byte> PlacedBuffer::Read() const { return device_ ? device_->Read() : host_; }

void PlacedBuffer::Write(const std::vector<std::byte>& content) {
  if (device_) {
    device_->Write(content);
  } else {
    std::copy(content.begin(), content.end(), host_.begin());
  }
}

std::string Describe(const PlacedCase& one) {
  return one.subject.name + ", type " + std::to_string(one.gradient_type) +
         (one.has_segments ? ", segments" : "") + (one.is_list ? ", list" : "") +
         (one.max_grad_norm > 0 ? ", clipped" : "") + (one.nan_calls.empty() ? "" : ", NaN");
}

PlacedOptimizer::PlacedOptimizer(const PlacedCase& one, onebitComm_t comm, int rank, int ranks,
                                 Memories memories, const onebitCompressorConfig_t* compressor)
    : case_(one), rank_(rank), ranks_(ranks) {
  if (memories == Memories::kDevice) stream_.emplace();
  x_ = std::make_unique<PlacedBuffer>(memories, BytesOf(problem_.StartPoint()));
  copy_ = std::make_unique<PlacedBuffer>(
      memories, std::vector<std::byte>(PlacedCase::kCount * sizeof(uint16_t)));
  gradient_ = std::make_unique<PlacedBuffer>(
      memories, Encode(std::vector<float>(PlacedCase::kCount), one.gradient_type, 1));
  onebitOptimizerConfig_t config = one.subject.config;
  config.compressor = compressor;
  // These put elements of 2 and of 4 bytes at addresses aligned to no more than that.
  counts_ = {1001, 77, 4500, 0, 333, 90};
  const std::vector<uint8_t> mask(563, 0xb7);
  std::vector<onebitSegment_t> segments;
  size_t offset = 0;
  for (const size_t count : counts_) {
    onebitSegment_t segment = ONEBIT_SEGMENT_INIT;
    segment.offset = offset;
    segment.count = count;
    if (one.is_list) segment.parameters = static_cast<float*>(x_->data()) + offset;
    if (one.is_list && one.has_copy) {
      segment.parameterCopy = static_cast<uint16_t*>(copy_->data()) + offset;
    }
    segments.push_back(segment);
    offset += count;
  }
  segments[1].flags = onebitSegmentDense;
  segments[1].mask = mask.data();
  segments[2].mask = mask.data();
  segments[2].lrScale = 0.5;
  segments[4].weightDecay = 0;
  if (config.algorithm == onebitAlgorithmOneBitLamb) segments[4].flags = onebitSegmentNoTrustRatio;
  if (one.has_segments) {
    config.segments = segments.data();
    config.segmentCount = segments.size();
  }
  if (!one.has_segments) counts_ = {PlacedCase::kCount};
  if (one.has_copy) {
    if (!one.is_list) config.parameterCopy = copy_->data();
    config.parameterCopyType = onebitBfloat16;
  }
  onebitOptimizer_t optimizer = nullptr;
  Check(onebitOptimizerCreate(&optimizer, comm, PlacedCase::kCount,
                              one.is_list ? nullptr : static_cast<float*>(x_->data()), &config));
  optimizer_.reset(optimizer);
}

onebitResult_t PlacedOptimizer::TryStep(size_t call, onebitStepResult_t* result) {
  std::vector<float> gradient = problem_.Gradient(FloatsOf(x_->Read()), rank_, call);
  for (size_t i = 3; i < gradient.size(); i += 17) gradient[i] = 0;  // no variance, ever
  const std::vector<size_t>& nans = case_.nan_calls;
  if (rank_ == ranks_ - 1 && std::find(nans.begin(), nans.end(), call) != nans.end()) {
    gradient[gradient.size() / 2] = NAN;
  }
  gradient_->Write(Encode(gradient, case_.gradient_type, 1));
  auto* gradients = static_cast<std::byte*>(gradient_->data());
  if (case_.is_list) {
    const size_t element_bytes = case_.gradient_type == onebitFloat32 ? 4 : 2;
    for (size_t i = 0; i < counts_.size(); ++i) {
      Check(onebitOptimizerAddGradient(get(), i, gradients, case_.gradient_type));
      gradients += counts_[i] * element_bytes;
    }
    gradients = nullptr;
  }
  return onebitOptimizerStep(get(), gradients, case_.gradient_type,
                             0.05 / (1 + 0.2 * static_cast<double>(call)), 0.75,
                             case_.max_grad_norm, result, stream());
}

PlacedStep PlacedOptimizer::Step(size_t call) {
  PlacedStep step;
  Check(TryStep(call, &step.result));
  Synchronize();
  step.x = x_->Read();
  step.copy = copy_->Read();
  return step;
}

std::vector<double> PlacedOptimizer::Ratios() const {
  std::vector<double> ratios;
  if (case_.subject.config.algorithm != onebitAlgorithmOneBitLamb) return ratios;
  for (size_t i = 0; i < counts_.size(); ++i) {
    onebitTrustRatio_t ratio = ONEBIT_TRUST_RATIO_INIT;
    Check(onebitOptimizerGetTrustRatio(get(), i, &ratio));
    ratios.insert(ratios.end(),
                  {ratio.coefficient, ratio.average, ratio.factor, ratio.momentumScale});
  }
  return ratios;
}

Blob PlacedOptimizer::Export(onebitStateKind_t kind) const { return StateOf(get(), kind); }

void PlacedOptimizer::Synchronize() const {
  if (stream_) stream_->Synchronize();
}

std::string DifferenceOf(const PlacedStep& found, const PlacedStep& expected) {
  const onebitStepResult_t& a = found.result;
  const onebitStepResult_t& b = expected.result;
  if (a.skipped != b.skipped) return "skipped " + std::to_string(a.skipped);
  if (a.stage != b.stage) return "stage " + std::to_string(a.stage);
  if (a.step != b.step) return "step " + std::to_string(a.step);
  if (std::memcmp(&a.grad_norm, &b.grad_norm, sizeof(a.grad_norm)) != 0) {
    return "grad_norm " + std::to_string(a.grad_norm) + " for " + std::to_string(b.grad_norm);
  }
  if (found.x != expected.x) return "parameters differ";
  if (found.copy != expected.copy) return "the copy of parameters differs";
  return "";
}

}  // namespace onebit::testing
