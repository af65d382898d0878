// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The state of an optimizer: how it is saved and loaded, exchanged between ranks, and read by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/state_blob.h"
#include "base/status.h"
#include "optim/arithmetic.h"
#include "optim/options.h"
#include "optim/rank_averages.h"
#include "optim/rank_progress.h"
#include "optim/saved_optimizer.h"
#include "optim/segment_table.h"
#include "optim/state_list.h"

namespace onebit::optim {

// Elements of an optimizer's state that callers know by name.
struct Moment {
  const char* name = "";
  std::span<float> elements;
  bool may_be_negative = true;
};

// Moments, counters and residuals. An algorithm lists what it adds to them, so that no member can
// be in a checkpoint and missing from a rank that takes over another's state.
//
// All functions that touch elements are called between Begin, or BeginAlone, and End of the
// arithmetic. One thread at a time.
class OptimizerState {
 public:
  // Inputs of the constructor.
  struct Setup {
    onebitComm_t comm;
    const Options& options;
    SegmentTable table;
    std::unique_ptr<Arithmetic> arithmetic;
  };

  virtual ~OptimizerState() = default;
  OptimizerState(const OptimizerState&) = delete;
  OptimizerState& operator=(const OptimizerState&) = delete;

  // Makes ranks agree on all state, if a step does not. Collective.
  virtual Status Sync() = 0;

  // State of kind kOptimizerRank or kOptimizerGlobal: one rank's share exactly, or that of all
  // ranks for any number of ranks. Exporting the latter is collective, makes ranks agree first, and
  // gives all the same bytes. `blob` has StateBytes; its content is undefined after an error.
  Result<size_t> StateBytes(StateKind kind);
  Status Export(StateKind kind, std::span<std::byte> blob);
  // Local. An error changes nothing.
  Status Import(std::span<const std::byte> blob);

  // Migrates to another communicator, whose ranks belong to the present one: ranks that missed the
  // last step receive its results from one that did not, then the compressor is rebound. Collective
  // on the new one. Returns the rank whose state all ranks have afterwards.
  Result<int> Rebind(onebitComm_t comm);

  // The moment of a segment, or of ONEBIT_ALL_SEGMENTS, for checkpoints of other formats. `segment`
  // must exist.
  Result<Moment> FindMoment(std::string_view name, size_t segment);
  // Copies the elements, from and to the host or the parameters' location. Writing fails without a
  // change if a value is not possible.
  Status ReadMoment(const Moment& moment, float* values);
  Status WriteMoment(const Moment& moment, const float* values);

  Arithmetic& arithmetic() const { return *arithmetic_; }
  const SegmentTable& table() const { return table_; }
  size_t count() const { return table_.count(); }
  uint64_t step() const { return step_; }

 protected:
  explicit OptimizerState(Setup setup);

  Status AllocateMoments();

  // ---- implemented by an algorithm

  virtual void ListState(StateList* list);
  // Names all moments, with the elements of all segments.
  virtual std::vector<Moment> Moments() const;
  // Checks that replaced values are possible for this optimizer.
  virtual Status CheckState() const;
  // Loads a state that agrees in everything that must be equal. An error changes nothing.
  virtual Status Adopt(const SavedOptimizer& saved);
  // The argument of the last onebitOptimizerRewarm, or else the configuration's value, for
  // algorithms that use it.
  virtual int64_t freeze_rule() const { return 0; }
  // PrepareCompressor recomputes what follows from replaced state: masks and floors.
  // ForgetDerivedState invalidates it.
  virtual Status PrepareCompressor() { return OkStatus(); }
  virtual void ForgetDerivedState() {}
  // Called when a checkpoint was loaded or the ranks have changed: what was seen of earlier steps,
  // and what ranks agreed on, no longer holds.
  virtual void BeginAnew() = 0;

  // ---- services for algorithms

  // An error if a rebind or a device has left the state neither old nor new.
  Status CheckWhole() const;
  // Marks the state so, and returns `status`.
  Status Torn(Status status);
  // Writes the low-precision copy after parameters were replaced outside an update.
  Status WriteParameterCopy() const;
  // The caller's mask of one segment, in memory that kernels can read.
  const uint8_t* user_mask(const Segment& segment) const {
    return user_masks_.size() == 0
               ? table_.user_mask(segment)
               : reinterpret_cast<const uint8_t*>(user_masks_.data()) + segment.mask_offset;
  }
  int rank() const { return averages_.rank(); }
  const float* m() const { return reinterpret_cast<const float*>(m_.data()); }
  const float* v() const { return reinterpret_cast<const float*>(v_.data()); }

  const Options options_;
  SegmentTable table_;
  const std::unique_ptr<Arithmetic> arithmetic_;
  RankAverages averages_;
  Memory m_, v_;
  uint64_t step_ = 0;       // t, counts steps that have happened
  double beta1_power_ = 1;  // beta1^t
  double beta2_power_ = 1;
  double first_learning_rate_ = 0;
  uint64_t dense_steps_ = 0, compressed_steps_ = 0, local_steps_ = 0, skipped_steps_ = 0;
  // As in RankProgress.
  uint64_t commits_ = 0, residual_commits_ = 0;

 private:
  Result<std::vector<StateSection>> StateSections(StateKind kind);
  SavedHead HeadOfState(StateKind kind) const;
  Status WriteState(StateKind kind, std::span<std::byte> blob);
  Status CompareState(uint64_t digest) const;
  Status AdoptCompressor(const SavedOptimizer& saved);
  Status TakeNewest(onebitComm_t comm, const std::vector<RankProgress>& progress, int rank,
                    int source);
  Status TakeState(onebitComm_t comm, int source, bool is_source, bool is_behind);
  Status BroadcastPart(const StateList::Part& part, int source, onebitComm_t comm);
  Status RebindCompressor(onebitComm_t comm, int rank);

  Memory user_masks_;             // on a device: a copy of the table's masks; else empty
  bool awaits_residual_ = false;  // received a compressed step whose residuals must follow
  bool is_torn_ = false;          // a rebind failed while it overwrote parameters, m and v
};

}  // namespace onebit::optim
