// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a communicator meet to make another one, even if it has failed.
//
// Each rank holds a port from the moment it has joined, and its control thread answers there: that
// the rank lives, whether it wants to meet, or that it went on without the asker. A rank that wants
// to meet visits the lowest rank that wants to meet as well, its host; with a list, the first of
// it. A host that finds a lower one sends its visitors there. It asks the ranks that are missing
// whether they live, decides when nobody is worth waiting for any more, and opens a port where
// those who met join.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fork.h"
#include "comm/control.h"
#include "comm/control_loop.h"
#include "comm/link_client.h"
#include "comm/link_server.h"
#include "comm/meeting_message.h"
#include "comm/unique_id.h"

namespace onebit {

// A port that is open but not served yet. Ranks that connect wait in its backlog.
struct SparePort {
  Descriptor listener;
  UniqueId id;
};

// Thread-safe, but for Meet and End, which one thread calls in turns.
class MeetingPoint final : private LoopItem, private LinkOwner {
 public:
  // The point of rank `rank`; `ids` are those of the spare ports of all ranks.
  static Result<std::shared_ptr<MeetingPoint>> Open(SparePort port, int rank,
                                                    std::vector<UniqueId> ids);
  ~MeetingPoint();
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;

  struct Wish {
    // The ranks to meet, at the first of them. Empty: whoever comes.
    std::vector<int> members;
    std::chrono::milliseconds grace;  // for ranks that do not answer
    bool needs_quorum = false;
    Deadline deadline;  // for ranks that live
  };
  struct Agreement {
    std::vector<int> members;  // by new rank
    UniqueId id;               // where they join; none if this rank is alone
    std::vector<int> missing;
  };
  // Waits for the others. Must be followed by End unless it fails.
  Result<Agreement> Meet(const Wish& wish, const StopCheck& stop);
  // True once a member of the agreement has gone before it joined, so that nobody can. Any thread.
  bool is_broken() const { return is_broken_.load(std::memory_order_acquire); }
  // Tells the others that this rank has joined, or leaves the meeting.
  void End(bool has_joined);
  // The communicator is gone. From now on this only says who went on.
  void Leave();

 private:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;

  enum class Stage { kAway, kMeeting, kDecided, kAgreed };

  struct Visitor {
    uint64_t link = 0;
    Visit visit;
    bool has_joined = false;
    TimePoint last_heard;
    TimePoint deadline;  // of its wish
  };
  // A connection to another rank's port, to visit it or to ask if it lives.
  struct Attempt {
    std::unique_ptr<LinkClient> client;
    TimePoint started;
    bool is_question = false;
    bool has_answered = false;
    TimePoint last_heard;
  };
  // Facts about a rank, since this one wants to meet.
  struct Peer {
    TimePoint asked{};     // the start of the last attempt that came to an end
    TimePoint answered{};  // the last sign of life
    TimePoint next_try{};
    bool is_away = false;    // by its last answer
    bool is_closed = false;  // it does not come: it has ended, left, or gone on without this one
  };

  MeetingPoint(int rank, std::vector<UniqueId> ids, const JobKey& key);

  void OnEvent(int fd, uint32_t events) override;
  TimePoint OnTimer(TimePoint now) override;
  void OnStall(TimePoint now) override;
  void OnOutOfMemory() override;
  bool is_over() const override { return false; }
  void Retire() override {}
  Status OnLinkMessage(uint64_t link, const Bytes& message) override;
  void OnLinkGone(uint64_t link, std::string_view why) override;
  bool IsLinkKnown(uint64_t link) const override { return known_links_.contains(link); }
  size_t AwaitedClients() const override { return 0; }
  void OnShortage() override {}

  bool is_open_wish() const { return wish_->members.empty(); }
  bool is_member(int rank) const;
  bool is_same_wish(const Visit& visit) const { return visit.wish == wish_digest_; }
  bool needs_quorum() const;
  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }
  const Peer& peer(int rank) const { return peers_[static_cast<size_t>(rank)]; }

  // This rank is a host.
  void On(uint64_t link, const Visit& visit);
  void DropVisitor(int rank);
  void SendAwayTo(int host);
  void RefuseVisitors(const Refusal& refusal);
  Bytes StateFor(const Visit& visit) const;
  std::vector<int> Missing() const;
  TimePoint EarliestDeadline() const;
  bool IsWorthWaitingFor(int rank, TimePoint now, TimePoint deadline) const;
  void DecideIfDue(TimePoint now);
  Status CheckThoseWhoWentOn(size_t met) const;
  Status CheckQuorum(const std::vector<int>& missing) const;
  Refusal WentOn() const;

  // This rank visits a host, or asks one.
  void Try(int rank, TimePoint now);
  void TryOthers(TimePoint now);
  bool IsHostable(int rank) const;
  void On(int rank, HostMessage message);
  void OnState(int rank, const HostState& state);
  void OnGoOn(int rank, const GoOn& go);
  void OnRefusal(int rank, const Refusal& refused);
  // `why` is the error that ended the attempt; ok if it is not needed any more.
  void EndAttempt(int rank, const Status& why);
  void ExpireAttempts(TimePoint now);
  void ExpireVisitors(TimePoint now);
  void Beat(TimePoint now);

  Result<Agreement> MeetOrFail(std::unique_lock<std::mutex>& lock, const StopCheck& stop);
  Status TimeOutError() const;
  void Reset();

  const int rank_;
  const std::vector<UniqueId> ids_;
  const Origin origin_;  // a forked copy must not use the connections
  LinkServer door_;
  std::atomic<bool> is_broken_{false};

  // Guarded by the loop's mutex.
  std::condition_variable changed_;
  Stage stage_ = Stage::kAway;
  std::optional<Wish> wish_;
  std::array<unsigned char, kKeyBytes> wish_digest_{};
  TimePoint started_{};
  std::vector<Peer> peers_;
  std::set<uint64_t> known_links_;
  std::map<int, Visitor> visitors_;
  std::map<uint64_t, int> rank_of_link_;
  TimePoint last_arrival_{};
  std::map<int, Attempt> attempts_;
  std::vector<std::unique_ptr<LinkClient>> ended_;  // one of them may still be on the stack
  std::optional<int> host_;                         // none: this rank is the host
  bool host_has_joined_ = false;
  HostState host_state_;
  Status last_error_;  // of an attempt
  TimePoint next_beat_{};
  std::optional<Agreement> agreement_;
  Status refusal_;
  Refusal gone_on_;           // of the most ranks that went on without this one
  std::vector<int> went_on_;  // those who came when this rank last went on with whoever came
  bool has_left_ = false;
};

}  // namespace onebit
