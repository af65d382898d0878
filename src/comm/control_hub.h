// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The rules at the hub of a communicator's control channel: who has joined, what is gathered, who
// is alive, and which failure was first. The server owns sockets and time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "comm/control_message.h"
#include "comm/record_comparer.h"
#include "comm/wait_records.h"

namespace onebit {

using Clock = std::chrono::steady_clock;

// Sends the hub's messages. A link is an authenticated connection; link numbers are not reused.
class ControlLinks {
 public:
  virtual void Send(uint64_t link, const HubMessage& message) = 0;
  // Closes the link once everything sent has gone out. Does not call OnGone.
  virtual void Close(uint64_t link) = 0;
  // True if something was sent in vain since the link was last heard.
  virtual bool IsLossy(uint64_t link) const = 0;

 protected:
  ~ControlLinks() = default;
};

// Used by one thread at a time. Every function may call those of `links`.
class ControlHub {
 public:
  // `process` is "host:pid" of this process. With a `job`, which may be empty, this process is
  // rank 0 of that job, at a place to which others may come by mistake. Without one, ranks have an
  // address that nobody else knows.
  ControlHub(std::string process, uint64_t comm_id, ControlLinks& links,
             std::optional<std::string> job = {})
      : process_(std::move(process)), comm_id_(comm_id), links_(links), job_(std::move(job)) {}

  void OnMessage(uint64_t link, const RankMessage& message, Clock::time_point now);
  void OnGone(uint64_t link, std::string_view why);
  // Sends heartbeats and finds silent ranks. Returns when to call it next.
  Clock::time_point OnTimer(Clock::time_point now);
  // This process was stopped for a while: silence during that time says nothing about the ranks.
  void OnStall(Clock::time_point now);

  // The process of the hub can serve the ranks no more.
  void Fail(const Status& cause) { Fail(Failure{.rank = 0, .is_of_group = true, .cause = cause}); }

  // Ranks that may still join, as far as is known.
  size_t awaited() const { return ranks_ == 0 ? 1 : ranks_ - joined_; }
  // All ranks have joined; nobody else may.
  bool is_complete() const { return ranks_ != 0 && joined_ == ranks_; }
  // No rank is left, and none can come that would not get a failure at once.
  bool is_over() const { return is_complete() && present_ == 0; }
  bool has_failed() const { return first_failure_.has_value(); }
  uint32_t present() const { return present_; }
  bool has_joined(uint64_t link) const { return rank_of_link_.contains(link); }

 private:
  struct Member {
    uint64_t link = 0;  // 0: not joined, or gone
    bool has_joined = false;
    bool has_left = false;
    std::string process;
    Clock::time_point last_heard;
    std::optional<Bytes> content;  // for the current gather
  };

  void On(uint64_t link, const Join& join, Clock::time_point now);
  void On(uint32_t rank, const Gather& gather);
  void On(uint32_t rank, const RecordBatch& calls);
  void On(uint32_t rank, const Waits& waits);
  void Admit(uint64_t link, const Join& join, Clock::time_point now);
  void TurnAway(uint64_t link, const Join& join);
  Status JoinedTwice(const Join& join) const;
  void Refuse(uint64_t link, uint32_t rank, const Status& cause);
  void Fail(Failure failure);
  void Lose(uint32_t rank, std::string_view why);
  void Remove(uint32_t rank);
  void SendToAll(const HubMessage& message);
  HubAlive Missing() const;

  const std::string process_;
  const uint64_t comm_id_;
  ControlLinks& links_;
  const std::optional<std::string> job_;
  std::string note_;    // of HubAlive, while ranks join
  uint32_t ranks_ = 0;  // from the first rank to join; 0 before
  std::chrono::milliseconds heartbeat_{1000};
  std::chrono::milliseconds loss_timeout_{15'000};
  std::vector<Member> members_;
  std::unordered_map<uint64_t, uint32_t> rank_of_link_;
  uint32_t joined_ = 0;
  uint32_t present_ = 0;
  uint64_t gather_number_ = 0;  // of the current gather
  uint32_t gathered_ = 0;
  RecordComparer record_comparer_{0};
  WaitRecords wait_records_{0};
  std::optional<Failure> first_failure_;
  Clock::time_point next_heartbeat_;
  Clock::time_point last_awake_ = Clock::now();  // last time this process ran
};

}  // namespace onebit
