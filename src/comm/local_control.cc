// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The first failure of a local group reaches every rank that is still in it.
#include "comm/local_control.h"

namespace onebit {

void LocalGroup::Join(int rank, FailureListener* listener) {
  std::lock_guard lock(mutex_);
  listeners_[static_cast<size_t>(rank)] = listener;
}

void LocalGroup::Leave(int rank) { Join(rank, nullptr); }

Failure LocalGroup::Report(int rank, const Status& cause) {
  std::lock_guard lock(mutex_);
  if (first_failure_.has_value()) return *first_failure_;
  first_failure_ = Failure{.rank = rank, .is_loss = false, .cause = cause};
  for (size_t r = 0; r < listeners_.size(); ++r) {
    if (static_cast<int>(r) != rank && listeners_[r] != nullptr) listeners_[r]->OnRemoteFailure();
  }
  return *first_failure_;
}

std::optional<Failure> LocalGroup::first_failure() const {
  std::lock_guard lock(mutex_);
  return first_failure_;
}

}  // namespace onebit
