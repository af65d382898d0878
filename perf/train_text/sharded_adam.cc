// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/train_text/sharded_adam.h"

#include <algorithm>
#include <cmath>

#include <Eigen/Core>

#include "perf/common/chunks_wire.h"
#include "perf/common/comm_stats.h"
#include "perf/common/rank_exchange.h"
#include "perf/common/tool_error.h"
#include "perf/common/wire_bounds.h"
#include "perf/train_text/optimizer_config.h"

namespace onebit::train {
namespace {

constexpr int kBias = 128;  // of exponents

bool AreFinite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

/** The power of two of an exponent, which is 0 for an element that sends nothing. */
float UnitOf(uint8_t exponent) { return std::ldexp(1.0F, exponent - kBias); }

template <typename T>
void Convert(const void* elements, std::span<float> values) {
  using Eigen::Index;
  const auto count = static_cast<Index>(values.size());
  Eigen::Map<Eigen::ArrayXf>(values.data(), count) =
      Eigen::Map<const Eigen::Array<T, Eigen::Dynamic, 1>>(static_cast<const T*>(elements), count)
          .template cast<float>();
}

UniqueCompressor Made(onebitComm_t comm, size_t part, const onebitCompressorConfig_t& config) {
  UniqueCompressor compressor;
  perf::Check(MakeCompressor(compressor, comm, part, onebitFloat32, &config),
              "onebitCompressorCreate");
  return compressor;
}

std::vector<uint8_t> PackedBits(std::span<const uint8_t> elements) {
  std::vector<uint8_t> bits((elements.size() + 7) / 8);
  for (size_t i = 0; i < elements.size(); ++i) {
    bits[i / 8] = static_cast<uint8_t>(bits[i / 8] | elements[i] << i % 8);
  }
  return bits;
}

}  // namespace

ShardedAdam::ShardedAdam(const TrainOptions& options, onebitComm_t comm,
                         std::span<const Tensor> tensors, std::span<float> parameters)
    : comm_(comm),
      tensors_(tensors),
      parameters_(parameters),
      config_(ConfigOf(options)),
      gradient_type_(options.gradient_type),
      gradient_scale_(options.gradient_scale()),
      has_units_(options.scales != onebitScalesFused),
      gradient_codec_(CompressionOf(options)),
      gather_codec_(GatherOf(options)),
      rank_(static_cast<size_t>(perf::RankOf(comm))),
      ranks_(static_cast<size_t>(perf::CountOf(comm))),
      part_((parameters.size() + ranks_ - 1) / ranks_),
      scratch_(ranks_ * part_),
      m_(part_),
      v_(part_),
      x_(part_),
      next_m_(part_),
      next_x_(part_),
      means_(tensors.size()) {
  const size_t begin = rank_ * part_, end = begin + part_;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const size_t from = std::max(begin, tensors[i].offset);
    const size_t to = std::min(end, tensors[i].offset + tensors[i].count());
    if (from < to) slices_.push_back({i, from - begin, to - begin});
  }
  for (const Slice& slice : slices_) {
    std::copy_n(&parameters[begin + slice.begin], slice.end - slice.begin, &x_[slice.begin]);
  }

  onebitCompressorConfig_t config = CompressorConfigOf(options);
  config.collective = onebitCollectiveReduceScatter;
  config.serverResidual = ONEBIT_UNDEF_INT;
  scatter_ = Made(comm, part_, config);
  config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  gather_codec_.Configure(&config);
  config.collective = onebitCollectiveAllGather;
  config.transactional = 0;  // one that is not finite is followed by another priming
  std::vector<uint8_t> is_parameter(scratch_.size());
  std::fill_n(is_parameter.begin(), parameters.size(), uint8_t{1});
  const std::vector<uint8_t> mask = PackedBits(is_parameter);
  if (parameters.size() != scratch_.size()) config.mask = mask.data();
  gather_ = Made(comm, part_, config);
}

void ShardedAdam::Step(const void* gradients, double rate, onebitStepResult_t* result) {
  const uint64_t before = perf::SentBy(comm_).bytes;
  const bool is_compressed = is_frozen();
  if (is_compressed && denominators_.empty()) {
    ForEachMessage(&freeze_messages_, [&] { Freeze(); });
  }
  Fill(gradients);
  bool is_done = false;
  uint64_t messages = 0;
  ForEachMessage(&messages, [&] {
    is_done = Average();
    if (!is_done) return;
    Update(rate);
    is_done = Gather();
  });
  if (is_done) {
    ++step_;
    ++(is_compressed ? compressed_steps_ : dense_steps_);
    if (!is_compressed) dense_messages_ = messages;
    if (!is_frozen() && step_ >= static_cast<uint64_t>(config_.freezeStep)) frozen_at_ = step_;
  } else {
    ++skipped_;
  }
  result->bytes_sent = perf::SentBy(comm_).bytes - before;
  bytes_sent_ += result->bytes_sent;
  result->skipped = is_done ? 0 : 1;
  result->stage = is_compressed ? onebitStageCompressed : onebitStageDense;
  result->step = step_;
}

void ShardedAdam::ForEachMessage(uint64_t* count, const std::function<void()>& calls) const {
  const uint64_t before = perf::SentBy(comm_).messages;
  calls();
  *count = perf::SentBy(comm_).messages - before;
}

void ShardedAdam::Fill(const void* gradients) {
  const std::span<float> values = std::span(scratch_).first(parameters_.size());
  switch (gradient_type_) {
    case onebitFloat16:
      Convert<Eigen::half>(gradients, values);
      break;
    case onebitBfloat16:
      Convert<Eigen::bfloat16>(gradients, values);
      break;
    default:
      Convert<float>(gradients, values);
  }
  if (gradient_scale_ != 1) {
    const auto factor = static_cast<float>(1 / gradient_scale_);
    for (float& value : values) value *= factor;
  }
  std::fill(scratch_.begin() + static_cast<std::ptrdiff_t>(values.size()), scratch_.end(), 0.0F);
}

// Averages the gradients to own(). False if one is not finite on some rank, which all ranks know.
bool ShardedAdam::Average() { return is_frozen() ? AverageCompressed() : AverageDense(); }

bool ShardedAdam::AverageDense() {
  perf::Check(onebitReduceScatter(scratch_.data(), own().data(), part_, onebitFloat32, onebitAvg,
                                  nullptr, comm_, nullptr),
              "onebitReduceScatter");
  double square = 0;  // not finite also if the square of an element is not
  for (const float value : own()) square += static_cast<double>(value * value);
  perf::Check(
      onebitAllReduce(&square, &square, 1, onebitFloat64, onebitSum, nullptr, comm_, nullptr),
      "onebitAllReduce");
  return std::isfinite(square);
}

bool ShardedAdam::AverageCompressed() {
  for (size_t i = 0; i < scratch_.size(); ++i) scratch_[i] *= UnitOf(exponents_[i]);
  perf::Check(onebitReduceScatter(scratch_.data(), own().data(), part_, onebitFloat32, onebitAvg,
                                  scatter_.get(), comm_, nullptr),
              "onebitReduceScatter");
  for (size_t i = 0; i < part_; ++i) own()[i] /= UnitOf(exponents_[rank_ * part_ + i]);
  return AreFinite(own());
}

// Computes the next moments and parameters from the average in own().
void ShardedAdam::Update(double rate) {
  const auto beta1 = static_cast<float>(config_.beta1);
  const auto beta2 = static_cast<float>(config_.beta2);
  const auto v_correction = static_cast<float>(Correction(config_.beta2, step_ + 1));
  const double m_correction = Correction(config_.beta1, step_ + 1);
  const auto eps = static_cast<float>(kEps);
  for (const Slice& slice : slices_) {
    const double decay = tensors_[slice.tensor].is_vector() ? 0 : config_.weightDecay;
    const auto kept = static_cast<float>(1 - rate * decay);
    const auto step = static_cast<float>(rate * m_correction);
    for (size_t i = slice.begin; i < slice.end; ++i) {
      const float gradient = own()[i];
      float denominator = 0;
      if (is_frozen()) {
        denominator = denominators_[i];
      } else {
        v_[i] = beta2 * v_[i] + (1 - beta2) * gradient * gradient;
        denominator = std::sqrt(v_[i] * v_correction) + eps;
      }
      next_m_[i] = beta1 * m_[i] + (1 - beta1) * gradient;
      next_x_[i] = kept * x_[i] - step * (next_m_[i] / denominator);
    }
  }
}

// Has all ranks follow the next parameters, and keeps these. False, and the step is taken back, if
// a compressed one is not finite on some rank.
bool ShardedAdam::Gather() {
  std::ranges::copy(next_x_, own().begin());
  onebitCompressor_t const compressor = is_frozen() ? gather_.get() : nullptr;
  perf::Check(onebitAllGather(own().data(), scratch_.data(), part_, onebitFloat32, compressor,
                              comm_, nullptr),
              "onebitAllGather");
  if (is_frozen() && !std::isfinite(scratch_[0])) {
    Prime();
    perf::Check(onebitCompressorRevert(scatter_.get()), "onebitCompressorRevert");
    return false;
  }
  std::copy_n(scratch_.begin(), parameters_.size(), parameters_.begin());
  m_.swap(next_m_);
  x_.swap(next_x_);
  return true;
}

// Begins the compressed stage.
void ShardedAdam::Freeze() {
  MeasureTensors();
  SetDenominators();
  ShareUnits();
  Prime();
}

// Finds the mean of v over each tensor.
void ShardedAdam::MeasureTensors() {
  for (const Slice& slice : slices_) {
    for (size_t i = slice.begin; i < slice.end; ++i) {
      means_[slice.tensor] += static_cast<double>(v_[i]);
    }
  }
  perf::Check(onebitAllReduce(means_.data(), means_.data(), means_.size(), onebitFloat64, onebitSum,
                              nullptr, comm_, nullptr),
              "onebitAllReduce");
  for (size_t i = 0; i < tensors_.size(); ++i) {
    means_[i] /= static_cast<double>(tensors_[i].count());
  }
}

// The floor of sqrt(v) is a share of its root mean square over the tensor.
void ShardedAdam::SetDenominators() {
  const double correction = Correction(config_.beta2, frozen_at_);
  denominators_.assign(part_, 1);
  for (const Slice& slice : slices_) {
    for (size_t i = slice.begin; i < slice.end; ++i) {
      const double least = std::sqrt(means_[slice.tensor]);
      const double root =
          std::max(std::sqrt(static_cast<double>(v_[i])), config_.varianceFloor * least);
      denominators_[i] = static_cast<float>(std::sqrt(correction) * root + kEps);
    }
  }
}

// All elements of a block get the same scale, so they travel in units of their divisors, in which
// they are alike. Those that never saw a gradient send none, because one bit cannot say 0.
void ShardedAdam::ShareUnits() {
  exponents_.assign(scratch_.size(), 0);
  for (size_t i = 0; i < part_; ++i) {
    if (v_[i] == 0) continue;
    const double size = has_units_ ? static_cast<double>(denominators_[i]) : 1;
    const double exponent = kBias - std::round(std::log2(size));
    exponents_[rank_ * part_ + i] = static_cast<uint8_t>(std::clamp(exponent, 1.0, 255.0));
  }
  perf::Check(onebitAllGather(&exponents_[rank_ * part_], exponents_.data(), part_, onebitUint8,
                              nullptr, comm_, nullptr),
              "onebitAllGather");
  std::vector<uint8_t> is_live(exponents_.size());
  std::ranges::transform(exponents_, is_live.begin(),
                         [](uint8_t exponent) { return static_cast<uint8_t>(exponent != 0); });
  const bool are_all = std::ranges::find(is_live, uint8_t{0}) == is_live.end();
  perf::Check(
      onebitCompressorSetMask(scatter_.get(), are_all ? nullptr : PackedBits(is_live).data()),
      "onebitCompressorSetMask");
}

// Makes the all-gather begin at the parameters that all ranks hold.
void ShardedAdam::Prime() {
  std::ranges::copy(parameters_, scratch_.begin());
  std::fill(scratch_.begin() + static_cast<std::ptrdiff_t>(parameters_.size()), scratch_.end(),
            0.0F);
  perf::Check(
      onebitCompressorPrime(gather_.get(), own().data(), scratch_.data(), onebitSum, nullptr),
      "onebitCompressorPrime");
}

// Returns the factor that corrects the bias of a moment that began as zeros.
double ShardedAdam::Correction(double beta, uint64_t step) const {
  if (config_.biasCorrection != 1) return 1;
  return 1 / (1 - std::pow(beta, static_cast<double>(step)));
}

onebitOptimizerStats_t ShardedAdam::Stats() const {
  onebitOptimizerStats_t stats{};
  stats.size = sizeof(stats);
  stats.step = step_;
  stats.dense_steps = dense_steps_;
  stats.compressed_steps = compressed_steps_;
  stats.skipped = skipped_;
  stats.frozen_at = frozen_at_;
  stats.bytes_sent = bytes_sent_;
  const size_t floats = scratch_.size() + m_.size() + v_.size() + x_.size() + next_m_.size() +
                        next_x_.size() + denominators_.size();
  stats.state_bytes = floats * sizeof(float) + exponents_.size() +
                      perf::StatsOf(scatter_.get()).residual_bytes +
                      perf::StatsOf(gather_.get()).residual_bytes;
  stats.stage = is_frozen() ? onebitStageCompressed : onebitStageDense;
  return stats;
}

double ShardedAdam::lag() const {
  double most = 0;
  for (const Slice& slice : slices_) {
    for (size_t i = slice.begin; i < slice.end; ++i) {
      const float held = parameters_[rank_ * part_ + i];
      most = std::max(most, std::abs(static_cast<double>(held) - static_cast<double>(x_[i])));
    }
  }
  return most;
}

uint64_t ShardedAdam::ExpectedBytes() const {
  if (ranks_ == 1) return 0;
  const uint64_t peers = ranks_ - 1;
  // Numbers travel in two exchanges of one message for each peer, and parts in segments.
  const auto numbers = [&](size_t count) {
    return perf::DenseWireBytes({.count = count, .ranks = ranks_}, sizeof(double), rank_);
  };
  perf::ChunksWire dense = {.count = part_, .ranks = ranks_};
  uint64_t bytes = 0;
  if (dense_steps_ > 0) {
    dense.segments = (dense_messages_ / peers - 2) / 2;
    bytes += dense_steps_ * (2 * perf::DenseChunksBytes(dense, sizeof(float)) + numbers(1));
  }
  if (compressed_steps_ == 0) return bytes;
  const auto compressed = [&](const UniqueCompressor& compressor, const perf::CodecChoice& codec) {
    return perf::CompressedChunksBytes({.count = part_,
                                        .ranks = ranks_,
                                        .packet = codec.packet(),
                                        .segments = perf::StatsOf(compressor.get()).segments});
  };
  bytes += compressed_steps_ *
           (compressed(scatter_, gradient_codec_) + compressed(gather_, gather_codec_));
  // FORMAT.md, section 12: a checksum of what is held ends about every 16th all-gather.
  for (uint64_t calls = 1; calls <= compressed_steps_; ++calls) {
    if ((1 + (calls - 1) % 255) % 16 == 0) bytes += peers * 2 * sizeof(uint32_t);
  }
  // The freeze: sums of tensors, which elements are live, and priming, which ends with a number.
  perf::ChunksWire live = dense;
  live.segments = freeze_messages_ / peers - 2 - dense.segments - 2;
  return bytes + numbers(tensors_.size()) + perf::DenseChunksBytes(live, 1) +
         perf::DenseChunksBytes(dense, sizeof(float)) +
         perf::DenseWireBytes({.count = 1, .ranks = ranks_}, sizeof(float), rank_);
}

}  // namespace onebit::train
