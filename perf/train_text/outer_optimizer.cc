// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Compiled without contraction: global parameters must be the same bytes on all ranks, whose
// processors may differ.
#include "perf/train_text/outer_optimizer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "perf/common/rank_exchange.h"
#include "perf/common/tool_error.h"

namespace onebit::train {

std::vector<size_t> DivideTensors(std::span<const size_t> sizes, size_t parts) {
  std::vector<size_t> sums = {0};
  for (const size_t size : sizes) sums.push_back(sums.back() + size);
  std::vector<size_t> ends;
  size_t end = 0;
  for (size_t part = 1; part <= parts; ++part) {
    // The border nearest to an equal share, which leaves something to the parts that follow.
    const double wanted =
        static_cast<double>(sums.back()) * static_cast<double>(part) / static_cast<double>(parts);
    const auto distance = [&](size_t border) {
      return std::abs(static_cast<double>(sums[border]) - wanted);
    };
    const size_t last = sizes.size() - (parts - part);
    size_t best = part == parts ? last : end + 1;
    for (size_t border = best + 1; border <= last; ++border) {
      if (distance(border) < distance(best)) best = border;
    }
    ends.push_back(end = best);
  }
  return ends;
}

OuterOptimizer::OuterOptimizer(const OuterRule& rule, onebitComm_t comm,
                               std::span<const size_t> tensors, std::span<float> parameters,
                               const onebitCompressorConfig_t* codec)
    : rule_(rule),
      has_feedback_(codec != nullptr && codec->mode != onebitModePlain),
      parameters_(parameters),
      values_(parameters.begin(), parameters.end()),
      momentum_(rule.momentum > 0 ? parameters.size() : 0),
      snapshot_(parameters.size()),
      average_(parameters.size()) {
  perf::Check(SplitComm(comm_, comm, 0, perf::RankOf(comm)), "onebitCommSplit");
  if (rule.overlap > 0) perf::Check(MakeStream(stream_), "onebitStreamCreate");
  AddFragments(tensors, codec);
}

void OuterOptimizer::AddFragments(std::span<const size_t> tensors,
                                  const onebitCompressorConfig_t* codec) {
  const auto parts = static_cast<size_t>(rule_.fragments);
  size_t tensor = 0;
  for (const size_t end : DivideTensors(tensors, parts)) {
    Fragment& fragment = fragments_.emplace_back();
    fragment.begin = fragment.end = fragments_.size() > 1 ? fragments_.rbegin()[1].end : 0;
    fragment.first_step = rule_.every * static_cast<int>(fragments_.size()) / rule_.fragments;
    for (; tensor < end; ++tensor) {
      if (fragment.end > fragment.begin) fragment.cuts.push_back(fragment.end - fragment.begin);
      fragment.end += tensors[tensor];
    }
    if (codec == nullptr) continue;
    onebitCompressorConfig_t config = *codec;
    if (config.codec == onebitCodecSign && config.block != ONEBIT_BLOCK_TENSOR) {
      config.cuts = fragment.cuts.data();
      config.cutCount = fragment.cuts.size();
    } else {
      fragment.cuts.clear();
    }
    perf::Check(MakeCompressor(fragment.compressor, comm_.get(), fragment.end - fragment.begin,
                               onebitFloat32, &config),
                "onebitCompressorCreate");
  }
}

bool OuterOptimizer::Step() {
  const auto ended = [this] {
    return std::accumulate(
        fragments_.begin(), fragments_.end(), uint64_t{0},
        [](uint64_t sum, const Fragment& fragment) { return sum + fragment.averages; });
  };
  const uint64_t before = ended();
  ++steps_;
  ApplyDue();
  for (Fragment& fragment : fragments_) {
    if (steps_ < fragment.first_step || (steps_ - fragment.first_step) % rule_.every != 0) continue;
    Begin(fragment);
    Submit(fragment);
  }
  ApplyDue();
  return ended() > before;
}

/** Computes the pseudo-gradient, which points as a gradient does: outer steps subtract it. */
void OuterOptimizer::Begin(Fragment& fragment) {
  for (size_t i = fragment.begin; i < fragment.end; ++i) {
    snapshot_[i] = parameters_[i];
    average_[i] = values_[i] - parameters_[i];
  }
  fragment.submitted = steps_;
}

void OuterOptimizer::Submit(Fragment& fragment) {
  float* const buffer = average_.data() + fragment.begin;
  perf::Check(onebitAllReduce(buffer, buffer, fragment.end - fragment.begin, onebitFloat32,
                              onebitAvg, fragment.compressor.get(), comm_.get(), stream_.get()),
              "onebitAllReduce");
}

/** Waits for all that was submitted, also for fragments behind the one that is due. */
void OuterOptimizer::Await() {
  if (stream_) perf::Check(onebitStreamSynchronize(stream_.get()), "onebitStreamSynchronize");
  bytes_ = perf::SentBy(comm_.get()).bytes;
}

void OuterOptimizer::ApplyDue() {
  for (Fragment& fragment : fragments_) {
    const bool is_due = fragment.submitted > 0 && steps_ >= fragment.submitted + rule_.overlap;
    if (!is_due) continue;
    Await();
    End(fragment);
  }
}

void OuterOptimizer::End(Fragment& fragment) {
  fragment.submitted = 0;
  ++fragment.averages;
  if (!Apply(fragment)) ++skipped_;
}

/** Returns false if the average is not finite: its bytes, and so the answer, are those of all
 * ranks. */
bool OuterOptimizer::Apply(const Fragment& fragment) {
  if (!IsFinite(fragment)) return false;
  for (size_t i = fragment.begin; i < fragment.end; ++i) {
    float step = average_[i];
    if (rule_.momentum > 0) {
      momentum_[i] = rule_.momentum * momentum_[i] + average_[i];
      step = rule_.is_nesterov ? average_[i] + rule_.momentum * momentum_[i] : momentum_[i];
    }
    values_[i] -= rule_.rate * step;
  }
  MoveParameters(fragment);
  return true;
}

bool OuterOptimizer::IsFinite(const Fragment& fragment) const {
  const std::span<const float> average =
      std::span(average_).subspan(fragment.begin, fragment.end - fragment.begin);
  return std::ranges::all_of(average, [](float value) { return std::isfinite(value); });
}

void OuterOptimizer::MoveParameters(const Fragment& fragment) {
  for (size_t i = fragment.begin; i < fragment.end; ++i) {
    parameters_[i] = rule_.is_rebase
                         ? values_[i] + (parameters_[i] - snapshot_[i])
                         : rule_.merge * parameters_[i] + (1 - rule_.merge) * values_[i];
  }
}

uint64_t OuterOptimizer::Flush() {
  Await();
  for (Fragment& fragment : fragments_) {
    if (fragment.submitted > 0) End(fragment);
  }
  for (Fragment& fragment : fragments_) {
    Begin(fragment);
    float* const buffer = average_.data() + fragment.begin;
    const size_t count = fragment.end - fragment.begin;
    const uint64_t before = perf::SentBy(comm_.get()).messages;
    perf::Check(has_feedback_ ? onebitCompressorPrime(fragment.compressor.get(), buffer, buffer,
                                                      onebitAvg, nullptr)
                              : onebitAllReduce(buffer, buffer, count, onebitFloat32, onebitAvg,
                                                nullptr, comm_.get(), nullptr),
                "the last average");
    fragment.flush_messages = perf::SentBy(comm_.get()).messages - before;
    static_cast<void>(Apply(fragment));  // not one of the averages that are counted
  }
  std::ranges::copy(values_, parameters_.begin());
  return perf::SentBy(comm_.get()).bytes - bytes_;
}

uint64_t OuterOptimizer::state_bytes() const {
  const size_t floats = values_.size() + momentum_.size() + snapshot_.size() + average_.size();
  uint64_t bytes = floats * sizeof(float);
  for (const Sent& sent : SentByFragments()) bytes += sent.shape.residual_bytes;
  return bytes;
}

std::vector<OuterOptimizer::Sent> OuterOptimizer::SentByFragments() const {
  std::vector<Sent> all;
  for (const Fragment& fragment : fragments_) {
    Sent& sent = all.emplace_back();
    sent.count = fragment.end - fragment.begin;
    sent.cuts = fragment.cuts;
    sent.averages = fragment.averages;
    sent.flush_messages = fragment.flush_messages;
    if (fragment.compressor) sent.shape = perf::StatsOf(fragment.compressor.get());
  }
  return all;
}

}  // namespace onebit::train
