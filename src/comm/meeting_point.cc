// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/meeting_point.h"

#include <sodium.h>

#include <algorithm>
#include <limits>

#include "base/log.h"
#include "comm/control_server.h"
#include "comm/quorum.h"
#include "comm/rank_list.h"
#include "comm/rendezvous.h"

namespace onebit {
namespace {

using std::chrono::milliseconds;

// A system that is reachable accepts a connection within this time; it is short because SYNs that
// a broken network has lost are repeated after a second only.
constexpr milliseconds kConnect{500};
// A process that runs answers within this time.
constexpr milliseconds kAnswer{1500};
// The pause between attempts to reach the same rank.
constexpr milliseconds kRetryPause{200};
// A rank that has not answered yet does not keep the next one waiting for longer than this.
constexpr milliseconds kStagger{100};
// Others who come by themselves need not be asked.
constexpr milliseconds kHeadStart{50};
// Time between signs of life of hosts and visitors, and the silence after which one is given up.
constexpr milliseconds kBeat{500};
constexpr milliseconds kSilence{3000};
// Added to the deadline: a visitor waits for the decision of its host, or for another host if this
// one does not make the call in time.
constexpr milliseconds kDecision{3000};
// Attempts at a time.
constexpr size_t kMostAttempts = 64;
constexpr size_t kNamedAbsent = 8;

Bytes DigestInput(std::span<const int> members) {
  ByteWriter writer;
  for (const int rank : members) writer.Integer(static_cast<uint32_t>(rank));
  return writer.Take();
}

// All zero for whoever comes.
std::array<unsigned char, kKeyBytes> DigestOf(std::span<const int> members) {
  std::array<unsigned char, kKeyBytes> digest{};
  if (members.empty()) return digest;
  const Bytes bytes = DigestInput(members);
  crypto_generichash(digest.data(), digest.size(),
                     reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), nullptr,
                     0);
  return digest;
}

}  // namespace

MeetingPoint::MeetingPoint(int rank, std::vector<UniqueId> ids, const JobKey& key)
    : rank_(rank),
      ids_(std::move(ids)),
      door_(*this, *this,
            {.key = key,
             .most_message_bytes = kMostVisitorMessageBytes,
             .is_wrong_key_expected = true}),
      peers_(ids_.size()) {}

Result<std::shared_ptr<MeetingPoint>> MeetingPoint::Open(SparePort port, int rank,
                                                         std::vector<UniqueId> ids) {
  std::shared_ptr<MeetingPoint> point(new MeetingPoint(rank, std::move(ids), port.id.key));
  ControlLoop& loop = ControlLoop::Get();
  std::lock_guard lock(loop.mutex());
  ONEBIT_TRY(loop.Add(point.get()));
  ONEBIT_TRY(point->door_.Open(std::move(port.listener)));
  return point;
}

MeetingPoint::~MeetingPoint() {
  if (!origin_.is_here()) return;
  ControlLoop& loop = ControlLoop::Get();
  std::lock_guard lock(loop.mutex());
  attempts_.clear();
  ended_.clear();
  door_.Close();
  door_.DropAll();
  loop.Remove(this);
}

Result<MeetingPoint::Agreement> MeetingPoint::Meet(const Wish& wish, const StopCheck& stop) {
  std::unique_lock lock(ControlLoop::Get().mutex());
  Reset();
  wish_ = wish;
  wish_digest_ = DigestOf(wish.members);
  stage_ = Stage::kMeeting;
  started_ = last_arrival_ = Clock::now();
  ControlLoop::Get().Wake();
  auto agreement = MeetOrFail(lock, stop);
  if (!agreement.ok()) {
    const bool is_late = agreement.status().code() == Code::kTimeout;
    RefuseVisitors({.cause = is_late ? Refusal::Cause::kMissing : Refusal::Cause::kFailed,
                    .text = agreement.status().text()});
    Reset();
  }
  return agreement;
}

Result<MeetingPoint::Agreement> MeetingPoint::MeetOrFail(std::unique_lock<std::mutex>& lock,
                                                         const StopCheck& stop) {
  const auto is_settled = [this] {
    return !refusal_.ok() || agreement_ || stage_ == Stage::kDecided;
  };
  while (true) {
    const Deadline last = wish_->deadline + wish_->grace + kDecision;
    if (!WaitUnlessStopped(changed_, lock, is_open_wish() ? last : wish_->deadline, stop,
                           is_settled)) {
      return Cancelled(rank_, "meeting the others");
    }
    ONEBIT_TRY(refusal_);
    if (agreement_ && stage_ == Stage::kAgreed) return *agreement_;
    if (stage_ != Stage::kDecided) return TimeOutError();
    if (agreement_->members.size() == 1) {
      stage_ = Stage::kAgreed;
      return *agreement_;
    }
    // The port is that of a new communicator, with a key of its own.
    lock.unlock();
    ControlServer::RetireFailed();
    SocketAddress address = ids_[static_cast<size_t>(rank_)].address;
    address.set_port(0);
    const JobKey key = RandomKey();
    const auto bound = ControlServer::Start({.address = address,
                                             .key = key,
                                             .process = NameOfThisProcess(),
                                             .first_rank_timeout = kAnswer + kSilence});
    lock.lock();
    ONEBIT_TRY(bound.status());
    if (stage_ != Stage::kDecided) continue;  // somebody has gone meanwhile
    agreement_->id = {.address = bound.value(), .key = key};
    stage_ = Stage::kAgreed;
    GoOn go{.members = {}, .port = bound.value().port(), .key = key};
    for (const int member : agreement_->members) {
      go.members.push_back(static_cast<uint32_t>(member));
    }
    const Bytes message = Encode(HostMessage(go));
    for (const auto& [rank, visitor] : visitors_) {
      if (is_member(rank)) door_.Send(visitor.link, message);
    }
    return *agreement_;
  }
}

void MeetingPoint::End(bool has_joined) {
  std::lock_guard lock(ControlLoop::Get().mutex());
  if (!has_joined) {
    // They come again if they want to.
    const std::vector<int> members = agreement_->members;
    agreement_.reset();
    for (const int rank : members) {
      if (visitors_.contains(rank)) DropVisitor(rank);
    }
    return Reset();
  }
  // Those that a list or a split leaves out still have the communicator.
  if (is_open_wish()) went_on_ = agreement_->members;
  const Bytes joined = Encode(HostMessage(HasJoined{}));
  for (const auto& [rank, visitor] : visitors_) {
    if (is_member(rank)) door_.Send(visitor.link, joined);
  }
  RefuseVisitors(WentOn());
  if (host_ && attempts_.contains(*host_)) {
    // The host closes the connection when it has joined, too: closed from here it might be reset
    // before the host has read this.
    attempts_[*host_].client->Send(Encode(VisitorMessage(HasJoined{})));
  }
  stage_ = Stage::kAway;
  wish_.reset();
}

void MeetingPoint::Leave() {
  if (!origin_.is_here()) return;
  std::lock_guard lock(ControlLoop::Get().mutex());
  has_left_ = true;
  if (!went_on_.empty()) RefuseVisitors(WentOn());
}

// Visitors stay: they may wait for the next meeting.
void MeetingPoint::Reset() {
  attempts_.clear();
  host_.reset();
  host_has_joined_ = false;
  host_state_ = {};
  last_error_ = {};
  refusal_ = {};
  gone_on_ = {};
  agreement_.reset();
  wish_.reset();
  stage_ = Stage::kAway;
  is_broken_.store(false, std::memory_order_release);
  peers_.assign(ids_.size(), {});
}

bool MeetingPoint::is_member(int rank) const {
  return agreement_ && std::ranges::find(agreement_->members, rank) != agreement_->members.end();
}

bool MeetingPoint::needs_quorum() const {
  return wish_->needs_quorum || std::ranges::any_of(visitors_, [](const auto& visitor) {
           return visitor.second.visit.needs_quorum;
         });
}

Refusal MeetingPoint::WentOn() const {
  return {.cause = Refusal::Cause::kWentOn,
          .went_on = static_cast<uint32_t>(went_on_.size()),
          .text = Format("the former ranks {} went on without it", TextOfRanks(went_on_))};
}

// ------------------------------------------------------------------------------------ as a host

Status MeetingPoint::OnLinkMessage(uint64_t link, const Bytes& bytes) {
  ONEBIT_ASSIGN_OR_RETURN(const VisitorMessage message, DecodeVisitorMessage(bytes));
  if (const auto* visit = std::get_if<Visit>(&message)) {
    if (known_links_.contains(link) || visit->rank >= ids_.size() ||
        visit->rank == static_cast<uint32_t>(rank_)) {
      return Error(Code::kCorrupt,
                   "it came a second time, or as rank {}, which is this rank or none", visit->rank);
    }
    known_links_.insert(link);
    On(link, *visit);
    return OkStatus();
  }
  const auto found = rank_of_link_.find(link);
  if (found == rank_of_link_.end()) return Error(Code::kCorrupt, "it did not say who it is");
  Visitor& visitor = visitors_[found->second];
  visitor.last_heard = Clock::now();
  if (std::holds_alternative<HasJoined>(message)) visitor.has_joined = true;
  return OkStatus();
}

void MeetingPoint::On(uint64_t link, const Visit& visit) {
  const int rank = static_cast<int>(visit.rank);
  const TimePoint now = Clock::now();
  // A rank of the last agreement comes again if it got an error where the others succeeded.
  const bool is_latecomer =
      !went_on_.empty() && (has_left_ || std::ranges::find(went_on_, rank) == went_on_.end());
  if (stage_ == Stage::kAway && is_latecomer) {
    door_.Send(link, Encode(HostMessage(WentOn())));
    known_links_.erase(link);
    return door_.CloseLink(link);
  }
  Peer& known = peer(rank);
  known.answered = now;
  known.is_away = known.is_closed = false;
  // The asker wants to meet as well, so if it is lower, its place is the better one.
  if (rank < rank_) known.next_try = now;
  if (visit.is_question) return door_.Send(link, StateFor(visit));
  if (host_ && stage_ != Stage::kAway) {
    door_.Send(link, Encode(HostMessage(MoveTo{static_cast<uint32_t>(*host_)})));
    known_links_.erase(link);
    return door_.CloseLink(link);
  }
  if (visitors_.contains(rank)) DropVisitor(rank);  // it has lost the connection, and we not yet
  visitors_[rank] = {.link = link,
                     .visit = visit,
                     .has_joined = false,
                     .last_heard = now,
                     .deadline = now + milliseconds(visit.patience_ms)};
  rank_of_link_[link] = rank;
  last_arrival_ = now;
  door_.Send(link, StateFor(visit));
}

void MeetingPoint::OnLinkGone(uint64_t link, std::string_view) {
  known_links_.erase(link);
  const auto found = rank_of_link_.find(link);
  if (found != rank_of_link_.end()) DropVisitor(found->second);
}

void MeetingPoint::DropVisitor(int rank) {
  const auto found = visitors_.find(rank);
  const Visitor visitor = found->second;
  visitors_.erase(found);
  rank_of_link_.erase(visitor.link);
  known_links_.erase(visitor.link);
  door_.CloseLink(visitor.link);
  peer(rank).next_try = Clock::now();
  if (!is_member(rank) || visitor.has_joined) return;
  if (stage_ == Stage::kDecided) {
    stage_ = Stage::kMeeting;
    agreement_.reset();
  } else if (stage_ == Stage::kAgreed) {
    is_broken_.store(true, std::memory_order_release);
  }
}

void MeetingPoint::SendAwayTo(int host) {
  const Bytes message = Encode(HostMessage(MoveTo{static_cast<uint32_t>(host)}));
  while (!visitors_.empty()) {
    const auto [rank, visitor] = *visitors_.begin();
    door_.Send(visitor.link, message);
    DropVisitor(rank);
  }
}

// Leaves visitors alone that want other members: this refusal is not about them.
void MeetingPoint::RefuseVisitors(const Refusal& refusal) {
  const Bytes message = Encode(HostMessage(refusal));
  std::vector<int> refused;
  for (const auto& [rank, visitor] : visitors_) {
    const bool has_same_wish = !wish_ || is_same_wish(visitor.visit);
    if (!has_same_wish && !has_left_) continue;
    const bool is_in = refusal.cause == Refusal::Cause::kWentOn && is_member(rank) && !has_left_;
    if (!is_in) door_.Send(visitor.link, message);
    refused.push_back(rank);
  }
  agreement_.reset();
  for (const int rank : refused) DropVisitor(rank);
}

Bytes MeetingPoint::StateFor(const Visit& visit) const {
  HostState state{.is_away = stage_ == Stage::kAway};
  if (wish_) {
    state.is_other_wish = !is_same_wish(visit);
    const std::vector<int> missing = Missing();
    state.missing = static_cast<uint32_t>(missing.size());
    for (const int rank : std::span(missing).first(std::min(missing.size(), kNamedAbsent))) {
      state.some_missing.push_back(static_cast<uint32_t>(rank));
    }
  }
  return Encode(HostMessage(state));
}

// Wanted ranks that have not come here to make the same communicator.
std::vector<int> MeetingPoint::Missing() const {
  std::vector<int> missing;
  for (int rank = 0; rank < static_cast<int>(ids_.size()); ++rank) {
    if (rank == rank_) continue;
    if (!is_open_wish() && std::ranges::find(wish_->members, rank) == wish_->members.end()) {
      continue;
    }
    const auto found = visitors_.find(rank);
    if (found == visitors_.end() || !is_same_wish(found->second.visit)) missing.push_back(rank);
  }
  return missing;
}

// All who have met count: a visitor that gave up before its host would be left behind.
MeetingPoint::TimePoint MeetingPoint::EarliestDeadline() const {
  TimePoint earliest = wish_->deadline;
  for (const auto& [rank, visitor] : visitors_) {
    if (is_same_wish(visitor.visit)) earliest = std::min(earliest, visitor.deadline);
  }
  return earliest;
}

// What made the communicator fail does not matter: a rank that was silent for too long may answer
// again.
bool MeetingPoint::IsWorthWaitingFor(int rank, TimePoint now, TimePoint deadline) const {
  const Peer& known = peer(rank);
  if (known.is_closed || now >= deadline + wish_->grace) return false;
  // Somebody who has just come may have come with others, through a network that works again.
  if (known.asked < last_arrival_) return true;
  const bool is_alive = known.answered >= known.asked;
  if (is_alive) return !known.is_away || now < deadline;
  return now < std::max(started_, known.answered) + wish_->grace;
}

void MeetingPoint::DecideIfDue(TimePoint now) {
  const std::vector<int> missing = Missing();
  if (is_open_wish()) {
    const TimePoint deadline = EarliestDeadline();
    for (const int rank : missing) {
      if (IsWorthWaitingFor(rank, now, deadline)) return;
    }
    Status status = CheckThoseWhoWentOn(ids_.size() - missing.size());
    if (status.ok()) status = CheckQuorum(missing);
    if (!status.ok()) {
      refusal_ = Error(status.code(), "rank {}: {}", rank_, status.text());
      RefuseVisitors({.cause = Refusal::Cause::kTooFew, .text = status.text()});
      return changed_.notify_all();
    }
  } else if (!missing.empty()) {
    return;
  }
  agreement_.emplace();
  agreement_->members = wish_->members;
  agreement_->missing = missing;
  if (is_open_wish()) {
    for (int rank = 0; rank < static_cast<int>(ids_.size()); ++rank) {
      if (std::ranges::find(missing, rank) == missing.end()) agreement_->members.push_back(rank);
    }
  }
  stage_ = Stage::kDecided;
  for (auto& [rank, attempt] : attempts_) ended_.push_back(std::move(attempt.client));
  attempts_.clear();
  changed_.notify_all();
}

// A rank whose network was broken may have gone on alone. It must not stop the others.
Status MeetingPoint::CheckThoseWhoWentOn(size_t met) const {
  if (gone_on_.went_on == 0) return OkStatus();
  if (needs_quorum() || gone_on_.went_on >= met) {
    return Error(Code::kInvalidUsage,
                 "the others gave up on this rank: {}; start it again from a checkpoint",
                 gone_on_.text);
  }
  Log(LogLevel::kWarn,
      "{} of {} ranks have met and go on, but {}, so both write the same checkpoint: set "
      "ONEBIT_QUORUM=1 to stop one of them",
      met, ids_.size(), gone_on_.text);
  return OkStatus();
}

Status MeetingPoint::CheckQuorum(const std::vector<int>& missing) const {
  std::vector<int> met;
  std::vector<int> dead;
  std::vector<int> doubtful;  // may be alive
  for (int rank = 0; rank < static_cast<int>(ids_.size()); ++rank) {
    const bool is_missing = std::ranges::binary_search(missing, rank);
    (!is_missing ? met : peer(rank).is_closed ? dead : doubtful).push_back(rank);
  }
  if (needs_quorum() && !HasQuorum(static_cast<int>(ids_.size()), met, dead)) {
    return Error(Code::kInvalidUsage,
                 "{} of {} ranks have met, the former ranks {}, and the former ranks {} may be "
                 "alive and go on by themselves: quorum 1 (ONEBIT_QUORUM) needs more than half of "
                 "these, or half including the lowest; start again from a checkpoint, or call "
                 "onebitCommShrink again once the network is repaired",
                 met.size(), ids_.size(), TextOfRanks(met), TextOfRanks(doubtful));
  }
  if (!needs_quorum() && !doubtful.empty() && 2 * met.size() <= ids_.size()) {
    Log(LogLevel::kWarn,
        "the former ranks {}, {} of {}, go on, but the former ranks {} may be alive and go on, "
        "too: if the network was cut, both write the same checkpoint; with ONEBIT_QUORUM=1 one of "
        "them stops",
        TextOfRanks(met), met.size(), ids_.size(), TextOfRanks(doubtful));
  }
  return OkStatus();
}

// -------------------------------------------------------------------------------- as a visitor

bool MeetingPoint::IsHostable(int rank) const {
  if (!is_open_wish()) return rank == wish_->members.front();
  return rank < host_.value_or(rank_);
}

void MeetingPoint::Try(int rank, TimePoint now) {
  const bool is_question = !IsHostable(rank);
  const auto patience = std::chrono::duration_cast<milliseconds>(wish_->deadline - now).count();
  constexpr int64_t kMostPatience = std::numeric_limits<uint32_t>::max();
  Visit visit{.rank = static_cast<uint32_t>(rank_),
              .is_question = is_question,
              .needs_quorum = wish_->needs_quorum,
              .patience_ms = static_cast<uint32_t>(std::clamp<int64_t>(patience, 0, kMostPatience)),
              .wish = wish_digest_};
  Attempt attempt{.client = std::make_unique<LinkClient>(ids_[static_cast<size_t>(rank)],
                                                         Encode(VisitorMessage(visit)),
                                                         MostHostMessageBytes(ids_.size())),
                  .started = now,
                  .is_question = is_question,
                  .has_answered = false,
                  .last_heard = now};
  Status status = attempt.client->Start(this);
  attempts_[rank] = std::move(attempt);
  if (status.ok()) return;
  if (status.code() == Code::kSystemError) {
    // Nothing is known of the other rank. A rank without descriptors must not go on alone.
    refusal_ = Error(Code::kSystemError, "rank {}: {}", rank_, status.text());
    changed_.notify_all();
  }
  EndAttempt(rank, status);
}

// A rank that finds no lower one to visit is the host, and asks those that are missing.
void MeetingPoint::TryOthers(TimePoint now) {
  if (host_) return;
  std::vector<int> due;
  const auto add_if_due = [&](int rank) {
    const bool is_busy = attempts_.contains(rank) || visitors_.contains(rank);
    if (!is_busy && !peer(rank).is_closed && now >= peer(rank).next_try) due.push_back(rank);
  };
  if (is_open_wish()) {
    // At first, each lower rank only when those below it have had time to answer.
    bool is_turn = true;
    for (int rank = 0; rank < rank_ && is_turn; ++rank) {
      add_if_due(rank);
      const auto attempt = attempts_.find(rank);
      const bool is_new = attempt == attempts_.end() ? !due.empty() && due.back() == rank
                                                     : now < attempt->second.started + kStagger;
      is_turn = !is_new || peer(rank).asked >= started_ || now >= started_ + kConnect;
    }
    if (is_turn && now >= started_ + kHeadStart) {
      for (int rank = rank_ + 1; rank < static_cast<int>(ids_.size()); ++rank) add_if_due(rank);
    }
    // Many silent ranks must not take the places of those that have not been asked for longest.
    std::ranges::stable_sort(due, {}, [&](int rank) { return peer(rank).asked; });
  } else if (wish_->members.front() != rank_) {
    add_if_due(wish_->members.front());
  }
  for (const int rank : due) {
    if (attempts_.size() >= kMostAttempts || !refusal_.ok()) return;
    Try(rank, now);
  }
}

void MeetingPoint::On(int rank, HostMessage message) {
  Attempt& attempt = attempts_[rank];
  const TimePoint now = Clock::now();
  attempt.last_heard = now;
  Peer& known = peer(rank);
  known.answered = now;
  known.asked = attempt.started;
  if (const auto* state = std::get_if<HostState>(&message)) return OnState(rank, *state);
  if (const auto* move = std::get_if<MoveTo>(&message)) {
    if (move->host < ids_.size() && move->host != static_cast<uint32_t>(rank_)) {
      peer(static_cast<int>(move->host)).next_try = now;
    }
    return EndAttempt(rank, OkStatus());
  }
  if (const auto* go = std::get_if<GoOn>(&message)) return OnGoOn(rank, *go);
  if (std::holds_alternative<HasJoined>(message)) {
    host_has_joined_ |= host_ == rank;
    return;
  }
  OnRefusal(rank, std::get<Refusal>(message));
}

void MeetingPoint::OnRefusal(int rank, const Refusal& refused) {
  const bool is_host = host_ == rank;
  EndAttempt(rank, OkStatus());
  if (stage_ != Stage::kMeeting) return;
  if (refused.cause == Refusal::Cause::kWentOn) {
    peer(rank).is_closed = true;
    if (refused.went_on > gone_on_.went_on) {
      gone_on_ = refused;
      gone_on_.text += Format(" (says former rank {})", rank);
    }
    // The ranks that are left cannot outnumber them, or must not go on without them in any case.
    if (!is_open_wish() || wish_->needs_quorum || 2 * refused.went_on >= ids_.size()) {
      refusal_ = Error(Code::kInvalidUsage,
                       "rank {}: the others gave up on this rank: {} (says former rank {}); start "
                       "it again from a checkpoint",
                       rank_, refused.text, rank);
    }
  } else if (is_host && refused.cause == Refusal::Cause::kTooFew) {
    refusal_ = Error(Code::kInvalidUsage, "rank {}: {}", rank_, refused.text);
  } else if (is_host && refused.cause == Refusal::Cause::kMissing) {
    refusal_ = {Code::kTimeout, refused.text};
  }
  changed_.notify_all();
}

void MeetingPoint::OnState(int rank, const HostState& state) {
  peer(rank).is_away = state.is_away;
  Attempt& attempt = attempts_[rank];
  attempt.has_answered = true;
  if (stage_ != Stage::kMeeting) return;
  // When it comes, it asks this rank, and is found. Until then the others must not depend on it.
  const bool is_no_host = state.is_away && is_open_wish();
  if (host_ == rank) {
    host_state_ = state;
    if (is_no_host) EndAttempt(rank, OkStatus());
    return;
  }
  if (attempt.is_question || is_no_host || !IsHostable(rank)) {
    return EndAttempt(rank, OkStatus());
  }
  if (host_) EndAttempt(*host_, OkStatus());
  host_ = rank;
  host_state_ = state;
  if (is_open_wish()) SendAwayTo(rank);
  for (auto& [other, its] : attempts_) {
    if (other > rank) ended_.push_back(std::move(its.client));
  }
  std::erase_if(attempts_, [&](const auto& one) { return one.first > rank; });
}

void MeetingPoint::OnGoOn(int rank, const GoOn& go) {
  if (host_ != rank || stage_ != Stage::kMeeting) return;
  Agreement agreement;
  for (const uint32_t member : go.members) {
    if (member < ids_.size()) agreement.members.push_back(static_cast<int>(member));
  }
  const bool is_in = std::ranges::find(agreement.members, rank_) != agreement.members.end();
  if (!is_in || (!is_open_wish() && agreement.members != wish_->members)) return;
  for (int other = 0; other < static_cast<int>(ids_.size()); ++other) {
    if (std::ranges::find(agreement.members, other) == agreement.members.end()) {
      agreement.missing.push_back(other);
    }
  }
  SocketAddress address = ids_[static_cast<size_t>(rank)].address;
  address.set_port(go.port);
  agreement.id = {.address = address, .key = go.key};
  agreement_ = std::move(agreement);
  stage_ = Stage::kAgreed;
  changed_.notify_all();
}

void MeetingPoint::EndAttempt(int rank, const Status& why) {
  const auto found = attempts_.find(rank);
  const TimePoint now = Clock::now();
  Peer& known = peer(rank);
  known.asked = found->second.started;
  known.next_try = std::max(known.next_try, now + kRetryPause);
  if (!why.ok()) {
    last_error_ = why;
    known.is_closed = found->second.client->is_refused();
  }
  if (known.is_closed && stage_ == Stage::kMeeting && !is_open_wish()) {
    refusal_ = Error(Code::kPeerLost, "rank {}: former rank {} has ended or left: {}", rank_, rank,
                     why.text());
    changed_.notify_all();
  }
  ended_.push_back(std::move(found->second.client));
  attempts_.erase(found);
  if (host_ != rank) return;
  host_.reset();
  // The host may have been wrong about who comes, or may be gone.
  last_arrival_ = now;
  if (stage_ == Stage::kAgreed && !host_has_joined_) {
    is_broken_.store(true, std::memory_order_release);
  }
}

// ------------------------------------------------------------------------------ in the loop

void MeetingPoint::OnEvent(int fd, uint32_t events) {
  if (door_.OnEvent(fd, events)) return;
  const auto found = std::ranges::find_if(
      attempts_, [&](const auto& one) { return one.second.client->fd() == fd; });
  if (found == attempts_.end()) return;
  const int rank = found->first;
  LinkClient* const client = found->second.client.get();
  const auto is_current = [&] {
    const auto now = attempts_.find(rank);
    return now != attempts_.end() && now->second.client.get() == client;
  };
  const Status status = client->OnEvent(events, [&](const Bytes& bytes) -> Status {
    ONEBIT_ASSIGN_OR_RETURN(HostMessage message, DecodeHostMessage(bytes));
    On(rank, std::move(message));
    if (!is_current()) return {Code::kAborted, "no longer needed"};
    return OkStatus();
  });
  if (!status.ok() && is_current()) EndAttempt(rank, status);
}

MeetingPoint::TimePoint MeetingPoint::OnTimer(TimePoint now) {
  ended_.clear();
  ExpireAttempts(now);
  ExpireVisitors(now);
  if (stage_ == Stage::kMeeting && refusal_.ok()) {
    TryOthers(now);
    if (!host_ && (!is_open_wish() || now >= started_ + kHeadStart)) DecideIfDue(now);
  }
  if (now >= next_beat_) Beat(now);
  TimePoint next = door_.OnTimer(now);
  if (stage_ == Stage::kMeeting) next = std::min(next, now + milliseconds(20));
  if (!visitors_.empty() || !attempts_.empty()) next = std::min(next, next_beat_);
  return next;
}

void MeetingPoint::ExpireAttempts(TimePoint now) {
  std::vector<int> expired;
  for (const auto& [rank, attempt] : attempts_) {
    const TimePoint end = attempt.has_answered             ? attempt.last_heard + kSilence
                          : attempt.client->is_connected() ? attempt.started + kAnswer
                                                           : attempt.started + kConnect;
    if (now >= end) expired.push_back(rank);
  }
  for (const int rank : expired) {
    if (attempts_.contains(rank)) {
      EndAttempt(rank, Error(Code::kTimeout, "no answer from {}",
                             ids_[static_cast<size_t>(rank)].address.Text()));
    }
  }
}

void MeetingPoint::ExpireVisitors(TimePoint now) {
  std::vector<int> silent;
  for (const auto& [rank, visitor] : visitors_) {
    if (now >= visitor.last_heard + kSilence) silent.push_back(rank);
  }
  for (const int rank : silent) DropVisitor(rank);
}

void MeetingPoint::Beat(TimePoint now) {
  next_beat_ = now + kBeat;
  for (const auto& [rank, visitor] : visitors_) {
    door_.Send(visitor.link, StateFor(visitor.visit));
  }
  if (host_ && attempts_.contains(*host_)) {
    attempts_[*host_].client->Send(Encode(VisitorMessage(StillHere{})));
  }
}

void MeetingPoint::OnStall(TimePoint now) {
  for (auto& [rank, visitor] : visitors_) visitor.last_heard = now;
  for (auto& [rank, attempt] : attempts_) {
    attempt.last_heard = now;
    if (!attempt.has_answered) attempt.started = now;
  }
  started_ = last_arrival_ = now;
}

void MeetingPoint::OnOutOfMemory() {
  attempts_.clear();
  ended_.clear();
  visitors_.clear();
  rank_of_link_.clear();
  known_links_.clear();
  door_.DropAll();
  host_.reset();
  if (stage_ == Stage::kAgreed) is_broken_.store(true, std::memory_order_release);
  if (stage_ != Stage::kAway) refusal_ = Status(Code::kOutOfMemory, "out of memory");
  changed_.notify_all();
}

Status MeetingPoint::TimeOutError() const {
  std::vector<int> missing;
  bool is_other_wish = false;
  std::string more;
  const double seconds = std::chrono::duration<double>(wish_->deadline - started_).count();
  if (host_) {
    is_other_wish = host_state_.is_other_wish;
    for (const uint32_t rank : host_state_.some_missing) missing.push_back(static_cast<int>(rank));
    if (missing.size() < host_state_.missing) {
      more = Format(" ... ({} in all)", host_state_.missing);
    }
    if (host_state_.is_away) missing = {*host_};
  } else {
    const bool is_host = is_open_wish() || wish_->members.front() == rank_;
    missing = is_host ? Missing() : std::vector<int>{wish_->members.front()};
    for (const auto& [rank, visitor] : visitors_) {
      is_other_wish |= std::ranges::find(missing, rank) != missing.end();
    }
  }
  if (is_other_wish) {
    return Error(Code::kMismatch,
                 "rank {}: the ranks disagree on which ranks remain: all of these must exclude the "
                 "same ranks",
                 rank_);
  }
  const std::string cause = last_error_.ok() ? "" : Format(" ({})", last_error_.text());
  return Error(Code::kTimeout,
               "rank {}: former ranks {}{} missing after {:.1f} s (ONEBIT_CONNECT_TIMEOUT_MS){}",
               rank_, TextOfRanks(missing), more, seconds, cause);
}

}  // namespace onebit
