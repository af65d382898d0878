// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The outer optimizer of one rank: DiLoCo (Douillard et al. 2023), and Streaming DiLoCo with
// several fragments and an overlap. Ranks step by themselves; every few steps the mean of what they
// have done moves global parameters, which are the same on all ranks, and each rank moves to these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "onebit/onebit.hpp"
#include "perf/common/comm_stats.h"
#include "perf/train_text/outer_rule.h"

namespace onebit::train {

/** Not thread-safe. All functions throw perf::ToolError. */
class OuterOptimizer {
 public:
  /** The messages that averages of a fragment have sent. */
  struct Sent {
    size_t count = 0;                 // elements
    std::vector<size_t> cuts;         // of codec sign: where tensors begin, but the first
    uint64_t averages = 0;            // without that of Flush
    onebitCompressorStats_t shape{};  // of the compressor
    uint64_t flush_messages = 0;
  };

  /**
   * Collective: makes a communicator of the ranks of `comm`, which may be used for other calls
   * while averages are on their way.
   *
   * @param tensors     Elements of each tensor in `parameters`, in order. No fragment cuts one.
   * @param parameters  Borrowed. Equal on all ranks now.
   * @param codec       The codec of averages; NULL: full precision.
   */
  OuterOptimizer(const OuterRule& rule, onebitComm_t comm, std::span<const size_t> tensors,
                 std::span<float> parameters, const onebitCompressorConfig_t* codec);

  /** After each inner step; does what is due. Returns true if an average has ended in it. */
  bool Step();
  /**
   * Applies what is in flight, then averages everything once more in full precision, with what is
   * owed. The parameters are the global ones afterwards. Returns the bytes sent for the latter.
   */
  uint64_t Flush();

  /** The global parameters: the same bytes on all ranks after each step. */
  std::span<const float> values() const { return values_; }
  onebitCommStats_t Stats() const { return perf::StatsOf(comm_.get()); }
  std::vector<Sent> SentByFragments() const;
  /** Memory held, besides the parameters. */
  uint64_t state_bytes() const;
  /** Bytes that this rank has sent for averages that have ended. */
  uint64_t bytes() const { return bytes_; }
  /** Averages that were not finite on some rank, so that no rank has applied them. */
  uint64_t skipped() const { return skipped_; }

 private:
  struct Fragment {
    size_t begin = 0;
    size_t end = 0;
    std::vector<size_t> cuts;
    int first_step = 0;
    UniqueCompressor compressor;
    int submitted = 0;  // the step of what is in flight; 0: nothing is
    uint64_t averages = 0;
    uint64_t flush_messages = 0;
  };

  void AddFragments(std::span<const size_t> tensors, const onebitCompressorConfig_t* codec);
  void Begin(Fragment& fragment);
  void Submit(Fragment& fragment);
  void Await();
  void ApplyDue();
  void End(Fragment& fragment);
  bool Apply(const Fragment& fragment);
  bool IsFinite(const Fragment& fragment) const;
  void MoveParameters(const Fragment& fragment);

  const OuterRule rule_;
  const bool has_feedback_;
  std::span<float> parameters_;
  std::vector<float> values_;    // global parameters
  std::vector<float> momentum_;  // of the outer steps
  std::vector<float> snapshot_;  // parameters when an average was submitted
  std::vector<float> average_;   // pseudo-gradients, then their averages
  int steps_ = 0;
  uint64_t skipped_ = 0;
  uint64_t bytes_ = 0;
  UniqueComm comm_;
  std::vector<Fragment> fragments_;
  UniqueStream stream_;  // with an overlap; last: its destructor waits for work on the others
};

/**
 * Cuts a sequence of sizes into `parts` ranges of about the same sum, none of which is empty, and
 * returns their ends.
 */
std::vector<size_t> DivideTensors(std::span<const size_t> sizes, size_t parts);

}  // namespace onebit::train
