// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Passes the first failure of a local group to every rank that is still in it.
#include "comm/local_control.h"

#include <algorithm>
#include <random>
#include <utility>

namespace onebit {

LocalGroup::LocalGroup(int ranks, std::vector<int> known_as)
    : id_(std::random_device()()),
      known_as_(std::move(known_as)),
      listeners_(static_cast<size_t>(ranks)),
      record_comparer_(static_cast<size_t>(ranks)),
      wait_records_(static_cast<size_t>(ranks)),
      contents_(static_cast<size_t>(ranks)) {}

void LocalGroup::Join(int rank, FailureListener* listener) {
  std::lock_guard lock(mutex_);
  listeners_[static_cast<size_t>(rank)] = listener;
}

void LocalGroup::EndJoining() {
  std::lock_guard lock(mutex_);
  known_as_.clear();
}

void LocalGroup::Leave(int rank) { Join(rank, nullptr); }

Failure LocalGroup::Report(const Failure& failure) {
  std::lock_guard lock(mutex_);
  return Fail(failure);
}

const Failure& LocalGroup::Fail(const Failure& failure) {
  if (first_failure_.has_value()) return *first_failure_;
  first_failure_ = failure;
  for (size_t r = 0; r < listeners_.size(); ++r) {
    const bool is_own =
        static_cast<int>(r) == failure.rank && !failure.is_loss && !failure.is_of_group;
    if (!is_own && listeners_[r] != nullptr) listeners_[r]->OnRemoteFailure();
  }
  changed_.notify_all();
  return *first_failure_;
}

std::optional<Failure> LocalGroup::first_failure() const {
  std::lock_guard lock(mutex_);
  return first_failure_;
}

std::vector<int> LocalGroup::lost_ranks() const {
  std::lock_guard lock(mutex_);
  if (!first_failure_ || !first_failure_->is_loss) return {};
  return {first_failure_->rank};
}

std::vector<int> LocalGroup::Present(std::span<const int> lost) const {
  std::lock_guard lock(mutex_);
  std::vector<int> present;
  for (size_t r = 0; r < listeners_.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (listeners_[r] != nullptr && std::ranges::find(lost, rank) == lost.end()) {
      present.push_back(rank);
    }
  }
  return present;
}

void LocalGroup::CompareCalls(int rank, RecordRing* calls) {
  std::lock_guard lock(mutex_);
  while (!first_failure_) {
    const auto next = calls->Take();
    if (!next) return;
    if (const auto failure = record_comparer_.Add(static_cast<uint32_t>(rank), *next))
      Fail(*failure);
  }
  calls->Clear();
}

void LocalGroup::CompareWaits(int rank, Waits waits) {
  std::lock_guard lock(mutex_);
  Compare(rank, std::move(waits));
}

void LocalGroup::Compare(int rank, Waits waits) {
  if (first_failure_) return;
  waits.gathers = gathers_;
  const auto failure = wait_records_.Add(static_cast<uint32_t>(rank), std::move(waits));
  if (failure) Fail(*failure);
}

Result<std::vector<Bytes>> LocalGroup::Gather(int rank, std::span<const std::byte> mine,
                                              Deadline deadline, const StopCheck& stop,
                                              std::string_view what,
                                              std::optional<uint64_t> calls_made) {
  std::unique_lock lock(mutex_);
  if (first_failure_) return DescribeFailure(*first_failure_, rank);
  const uint64_t number = gathers_;
  contents_[static_cast<size_t>(rank)] = Bytes(mine.begin(), mine.end());
  if (std::all_of(contents_.begin(), contents_.end(), [](const auto& one) { return !!one; })) {
    std::vector<Bytes> all;
    for (auto& content : contents_) all.push_back(*std::exchange(content, std::nullopt));
    gathered_ = std::make_shared<const std::vector<Bytes>>(std::move(all));
    ++gathers_;
    changed_.notify_all();
    return *gathered_;
  }
  const auto is_settled = [&] { return gathers_ != number || first_failure_; };
  const auto wait_until = [&](Deadline until) {
    return WaitUnlessStopped(changed_, lock, until, stop, is_settled);
  };
  bool goes_on = wait_until(std::min(deadline, std::chrono::steady_clock::now() + kPatience));
  if (goes_on && !is_settled() && calls_made) {
    Compare(rank, {.is_gather = true, .calls = *calls_made, .what = std::string(what)});
  }
  if (goes_on && !is_settled()) goes_on = wait_until(deadline);
  if (!goes_on) return Cancelled(rank, what);
  if (!is_settled()) return GatherFailure(rank, what);
  // The next gather cannot complete without this rank, so these are the contents of this one.
  if (gathers_ != number) return *gathered_;
  return DescribeFailure(*first_failure_, rank);
}

Status LocalGroup::GatherFailure(int rank, std::string_view what) const {
  std::string missing;
  for (size_t r = 0; r < contents_.size(); ++r) {
    if (contents_[r]) continue;
    AppendFormat(&missing, " {}", r < known_as_.size() ? known_as_[r] : static_cast<int>(r));
  }
  return Error(Code::kTimeout, "rank {} of {}: {}: {}ranks{} missing", rank, contents_.size(), what,
               known_as_.empty() ? "" : "former ", missing);
}

std::shared_ptr<LocalGroup> LocalGroup::Subgroup(std::span<const int> members, int rank) {
  std::lock_guard lock(mutex_);
  auto found = std::find_if(pending_.begin(), pending_.end(), [&](const Pending& pending) {
    return std::ranges::equal(pending.members, members) &&
           std::ranges::count(pending.awaited, rank) != 0 && !pending.group->first_failure();
  });
  if (found == pending_.end()) {
    // An earlier attempt of the same ranks can no longer complete.
    std::erase_if(pending_, [&](const Pending& pending) {
      return std::ranges::equal(pending.members, members);
    });
    pending_.push_back(
        {.members = {members.begin(), members.end()},
         .awaited = {members.begin(), members.end()},
         .group = std::make_shared<LocalGroup>(static_cast<int>(members.size()),
                                               std::vector<int>(members.begin(), members.end()))});
    found = std::prev(pending_.end());
  }
  std::shared_ptr<LocalGroup> group = found->group;
  std::erase(found->awaited, rank);
  if (found->awaited.empty()) pending_.erase(found);
  return group;
}

}  // namespace onebit
