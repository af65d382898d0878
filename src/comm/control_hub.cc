// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/control_hub.h"

#include <algorithm>

#include "base/log.h"

namespace onebit {
namespace {

constexpr size_t kNamedMissing = 16;

}  // namespace

void ControlHub::OnMessage(uint64_t link, const RankMessage& message, Clock::time_point now) {
  const auto found = rank_of_link_.find(link);
  if (found == rank_of_link_.end()) {
    // The first message must be Join.
    if (const Join* join = std::get_if<Join>(&message)) return On(link, *join, now);
    return links_.Close(link);
  }
  const uint32_t rank = found->second;
  members_[rank].last_heard = now;
  if (const Gather* gather = std::get_if<Gather>(&message)) {
    On(rank, *gather);
  } else if (const RecordBatch* calls = std::get_if<RecordBatch>(&message)) {
    On(rank, *calls);
  } else if (const Waits* waits = std::get_if<Waits>(&message)) {
    On(rank, *waits);
  } else if (const Report* report = std::get_if<Report>(&message)) {
    const bool is_loss = report->lost.has_value() && *report->lost < ranks_;
    Fail({.rank = static_cast<int>(is_loss ? *report->lost : rank),
          .is_loss = is_loss,
          .cause = report->cause});
  } else if (std::holds_alternative<WhoIsMissing>(message)) {
    links_.Send(link, Missing());
  } else if (std::holds_alternative<Leave>(message)) {
    members_[rank].has_left = true;
    // The hub's own process may end once its rank has left. The other ranks must know before it
    // does, or they would take the end for a failure.
    if (members_[rank].process == process_) SendToAll(MayEnd{});
    links_.Close(link);
    Remove(rank);
    if (gathered_ > 0) {
      Fail({.rank = static_cast<int>(rank), .is_of_group = true, .cause = HasLeft(rank)});
    }
  } else if (std::holds_alternative<Join>(message)) {
    links_.Close(link);
    OnGone(link, "joined a second time");
  }
}

void ControlHub::On(uint64_t link, const Join& join, Clock::time_point now) {
  if (join.ranks == 0 || join.ranks > kMaxRanks || join.rank >= join.ranks) {
    return Refuse(
        link, join.rank,
        Error(Code::kInvalidArgument, "rank {} of {} is out of range", join.rank, join.ranks));
  }
  if (job_ && join.job != *job_) return TurnAway(link, join);
  if (first_failure_) {
    links_.Send(link, Failed{*first_failure_});
    return links_.Close(link);
  }
  if (ranks_ == 0) {
    ranks_ = join.ranks;
    members_.resize(ranks_);
    record_comparer_ = RecordComparer(ranks_);
    wait_records_ = WaitRecords(ranks_);
    heartbeat_ = std::chrono::milliseconds(std::max(1u, join.heartbeat_ms));
    loss_timeout_ = std::chrono::milliseconds(std::max(1u, join.loss_timeout_ms));
    next_heartbeat_ = now + heartbeat_;
  }
  if (join.ranks != ranks_) {
    const auto first = std::find_if(members_.begin(), members_.end(),
                                    [](const Member& member) { return member.has_joined; });
    return Refuse(
        link, join.rank,
        Error(Code::kMismatch,
              "nranks differs between ranks: rank {} ({}) has {}, rank {} ({}) has {}; start "
              "all ranks with the same number",
              first - members_.begin(), first->process, ranks_, join.rank, join.process,
              join.ranks));
  }
  const bool is_second_rank_0 = job_ && join.rank == 0 && join.process != process_;
  if (members_[join.rank].has_joined || is_second_rank_0) {
    return Refuse(link, join.rank, JoinedTwice(join));
  }
  Admit(link, join, now);
}

Status ControlHub::JoinedTwice(const Join& join) const {
  const Member& first = members_[join.rank];
  return Error(Code::kMismatch,
               "rank {} joined twice: {} and {}; give every process a rank of its own{}", join.rank,
               first.has_joined ? first.process : process_, join.process,
               job_ ? ", and every job a rendezvous or an ONEBIT_JOB of its own" : "");
}

// Ranks of another job have come to the wrong place. That must not end this job.
void ControlHub::TurnAway(uint64_t link, const Join& join) {
  const auto shown = [](const std::string& job) {
    return job.empty() ? std::string("a job without ONEBIT_JOB") : Format("the job {}", job);
  };
  const std::string stranger =
      Format("{}, rank {} of {}", join.process, join.rank, shown(join.job));
  const bool is_first = note_.empty();
  note_ = Format("{}, was turned away", stranger);
  Log(is_first ? LogLevel::kWarn : LogLevel::kInfo, "control port: {}: this is where {} meets",
      note_, shown(*job_));
  links_.Send(
      link, Refused{.is_other_job = true,
                    .cause = Error(
                        Code::kMismatch,
                        "{}, came to where {} meets (its rank 0 is {}): give each job a rendezvous "
                        "of its own (ONEBIT_RENDEZVOUS, or MASTER_ADDR and MASTER_PORT), or, if "
                        "they are one job, give all ranks the same ONEBIT_JOB",
                        stranger, shown(*job_), process_)});
  links_.Close(link);
}

void ControlHub::Admit(uint64_t link, const Join& join, Clock::time_point now) {
  Member& member = members_[join.rank];
  member.link = link;
  member.has_joined = true;
  member.process = join.process;
  member.last_heard = now;
  rank_of_link_[link] = join.rank;
  ++joined_;
  ++present_;
  links_.Send(link, Joined{comm_id_, process_});
}

// One wrong rank means that the job was started wrongly, so the whole group fails.
void ControlHub::Refuse(uint64_t link, uint32_t rank, const Status& cause) {
  links_.Send(link, Refused{.is_other_job = false, .cause = cause});
  links_.Close(link);
  Fail({.rank = static_cast<int>(rank), .is_loss = false, .cause = cause});
}

void ControlHub::On(uint32_t rank, const Gather& gather) {
  Member& member = members_[rank];
  if (gather.number != gather_number_ || member.content.has_value() ||
      gather.content.size() > kMaxContentBytes) {
    return Fail({.rank = static_cast<int>(rank),
                 .is_loss = false,
                 .cause = Error(Code::kInternalError, "it sent gather {} when {} was due",
                                gather.number, gather_number_)});
  }
  const auto gone = std::find_if(members_.begin(), members_.end(),
                                 [](const Member& other) { return other.has_left; });
  if (gone != members_.end()) {
    const auto left = static_cast<int>(gone - members_.begin());
    return Fail({.rank = left, .is_of_group = true, .cause = HasLeft(left)});
  }
  member.content = gather.content;
  if (++gathered_ < ranks_) return;
  Gathered all = {.number = gather_number_, .contents = {}};
  for (Member& each : members_) {
    all.contents.push_back(std::move(*each.content));
    each.content.reset();
  }
  ++gather_number_;
  gathered_ = 0;
  SendToAll(all);
}

void ControlHub::On(uint32_t rank, const RecordBatch& calls) {
  if (first_failure_) return;
  if (auto failure = record_comparer_.Add(rank, calls)) {
    Fail(*std::move(failure));
  }
}

void ControlHub::On(uint32_t rank, const Waits& waits) {
  if (first_failure_) return;
  if (auto failure = wait_records_.Add(rank, waits)) Fail(*std::move(failure));
}

void ControlHub::OnGone(uint64_t link, std::string_view why) {
  const auto found = rank_of_link_.find(link);
  if (found == rank_of_link_.end()) return;
  const uint32_t rank = found->second;
  Remove(rank);
  Lose(rank, why);
}

// A loss after the first failure is no cause, but the others must know who is left.
void ControlHub::Lose(uint32_t rank, std::string_view why) {
  Failure loss{.rank = static_cast<int>(rank),
               .is_loss = true,
               .cause = Error(Code::kPeerLost, "its process {} {}", members_[rank].process, why)};
  if (first_failure_) return SendToAll(Failed{std::move(loss)});
  Fail(std::move(loss));
}

Clock::time_point ControlHub::OnTimer(Clock::time_point now) {
  last_awake_ = now;
  if (present_ == 0) return Clock::time_point::max();
  Clock::time_point next = Clock::time_point::max();
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    Member& member = members_[rank];
    if (member.link == 0) continue;
    const Clock::duration silence = now - member.last_heard;
    const bool is_lossy = silence >= loss_timeout_ && links_.IsLossy(member.link);
    const std::chrono::milliseconds longest = LongestSilence(loss_timeout_, is_lossy);
    if (silence < longest) {
      next = std::min(next, member.last_heard + longest);
      continue;
    }
    const uint64_t link = member.link;
    // The silent rank gets the failure, too, because it may be alive.
    Lose(rank, SilenceText(silence, is_lossy));
    Remove(rank);
    links_.Close(link);
  }
  if (now >= next_heartbeat_) {
    next_heartbeat_ = now + heartbeat_;
    SendToAll(Missing());
  }
  return std::min(next, next_heartbeat_);
}

void ControlHub::OnStall(Clock::time_point now) {
  const Clock::duration stall = now - last_awake_;
  last_awake_ = now;
  for (Member& member : members_) member.last_heard = now;
  if (stall < loss_timeout_) return;
  // The other ranks have given up the rank of this process; whatever they report now is a
  // consequence.
  const auto own = std::find_if(members_.begin(), members_.end(), [this](const Member& member) {
    return member.link != 0 && member.process == process_;
  });
  if (own == members_.end()) return;
  Lose(static_cast<uint32_t>(own - members_.begin()),
       Format("was stopped for {:.1f} s, longer than ONEBIT_LOSS_TIMEOUT_MS", SecondsOf(stall)));
}

void ControlHub::Fail(Failure failure) {
  if (first_failure_) return;
  first_failure_ = std::move(failure);
  SendToAll(Failed{*first_failure_});
}

void ControlHub::Remove(uint32_t rank) {
  rank_of_link_.erase(members_[rank].link);
  members_[rank].link = 0;
  --present_;
}

void ControlHub::SendToAll(const HubMessage& message) {
  for (const Member& member : members_) {
    if (member.link != 0) links_.Send(member.link, message);
  }
}

HubAlive ControlHub::Missing() const {
  HubAlive alive;
  if (is_complete() && gathered_ == 0) return alive;
  if (!is_complete()) alive.note = note_;
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    const Member& member = members_[rank];
    const bool is_missing = is_complete() ? !member.content.has_value() : !member.has_joined;
    if (!is_missing) continue;
    ++alive.missing;
    if (alive.some_missing.size() < kNamedMissing) alive.some_missing.push_back(rank);
  }
  return alive;
}

}  // namespace onebit
