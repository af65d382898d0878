// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Control channel between ranks that are threads of one process.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "comm/control.h"
#include "comm/record_comparer.h"
#include "comm/wait_records.h"

namespace onebit {

// State that the ranks of one group share. Thread-safe. Its lock is taken when ranks join, leave,
// fail and gather, and when calls are compared.
class LocalGroup {
 public:
  // `known_as` has former numbers of the ranks, which texts use until EndJoining.
  explicit LocalGroup(int ranks, std::vector<int> known_as = {});

  // The random id of the communicator.
  uint32_t id() const { return id_; }

  void Join(int rank, FailureListener* listener);
  void EndJoining();
  void Leave(int rank);  // no call of the listener follows
  Failure Report(const Failure& failure);
  std::optional<Failure> first_failure() const;
  std::vector<int> lost_ranks() const;
  // The ranks that have not left, without `lost`.
  std::vector<int> Present(std::span<const int> lost) const;
  void CompareCalls(int rank, RecordRing* calls);
  void CompareWaits(int rank, Waits waits);
  Result<std::vector<Bytes>> Gather(int rank, std::span<const std::byte> mine, Deadline deadline,
                                    const StopCheck& stop, std::string_view what,
                                    std::optional<uint64_t> calls_made);

  // Returns the group of `members`, ranks of this one in the order of their new ranks. Every member
  // asks once and gets the same group. A group that fails before all members have asked is
  // replaced, so that they can try again. Also works after this group has failed.
  std::shared_ptr<LocalGroup> Subgroup(std::span<const int> members, int rank);

 private:
  // A subgroup that some members have yet to ask for.
  struct Pending {
    std::vector<int> members;
    std::vector<int> awaited;
    std::shared_ptr<LocalGroup> group;
  };

  // Called with the mutex held.
  const Failure& Fail(const Failure& failure);
  void Compare(int rank, Waits waits);
  Status GatherFailure(int rank, std::string_view what) const;

  const uint32_t id_;
  mutable std::mutex mutex_;  // guards all members below
  std::condition_variable changed_;
  std::vector<int> known_as_;
  std::vector<FailureListener*> listeners_;
  std::optional<Failure> first_failure_;
  RecordComparer record_comparer_;
  WaitRecords wait_records_;
  std::vector<std::optional<Bytes>> contents_;          // of the current gather, by rank
  std::shared_ptr<const std::vector<Bytes>> gathered_;  // of the last one
  uint64_t gathers_ = 0;                                // completed gathers
  std::vector<Pending> pending_;
};

class LocalControl final : public Control {
 public:
  LocalControl(std::shared_ptr<LocalGroup> group, int rank, FailureListener* listener)
      : group_(std::move(group)), rank_(rank) {
    group_->Join(rank, listener);
  }
  ~LocalControl() override { group_->Leave(rank_); }
  LocalControl(const LocalControl&) = delete;
  LocalControl& operator=(const LocalControl&) = delete;

  void EndJoining() override {
    Control::EndJoining();
    group_->EndJoining();
  }
  Failure Report(const Failure& failure) override { return group_->Report(failure); }
  std::optional<Failure> first_failure() const override { return group_->first_failure(); }
  std::vector<int> lost_ranks() const override { return group_->lost_ranks(); }
  void SendCalls() override { group_->CompareCalls(rank_, calls_.get()); }
  void ReportWait(Waits waits) override {
    if (!has_withdrawn_) group_->CompareWaits(rank_, std::move(waits));
  }
  void WithdrawWait() override {
    ReportWait({});
    has_withdrawn_ = true;
  }
  Result<std::vector<Bytes>> Gather(std::span<const std::byte> mine, Deadline deadline,
                                    std::string_view what) override {
    return group_->Gather(rank_, mine, deadline, stop_, what,
                          has_withdrawn_ ? std::nullopt : std::optional(calls_made_));
  }

 private:
  std::shared_ptr<LocalGroup> group_;
  int rank_;
};

}  // namespace onebit
