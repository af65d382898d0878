// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Control channel between ranks that are threads of one process.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "comm/control.h"

namespace onebit {

// What the ranks of one group share.
class LocalGroup {
 public:
  explicit LocalGroup(int ranks) : listeners_(static_cast<size_t>(ranks)) {}

  void Join(int rank, FailureListener* listener);
  void Leave(int rank);  // the listener is not called any more when this returns
  Failure Report(int rank, const Status& cause);
  std::optional<Failure> first_failure() const;

 private:
  mutable std::mutex mutex_;  // guards both; taken at birth, death and failure only
  std::vector<FailureListener*> listeners_;
  std::optional<Failure> first_failure_;
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

  Failure Report(const Status& cause) override { return group_->Report(rank_, cause); }
  std::optional<Failure> first_failure() const override { return group_->first_failure(); }

 private:
  std::shared_ptr<LocalGroup> group_;
  int rank_;
};

}  // namespace onebit
