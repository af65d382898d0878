// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/control_client.h"

#include <sys/epoll.h>

#include <algorithm>
#include <new>

#include "base/log.h"
#include "wait/backoff.h"

namespace onebit {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Limits one attempt to join; a server that is running answers at once.
constexpr milliseconds kAttempt{5000};
// Limits the first packets to one of several addresses, some of which may lead nowhere.
constexpr milliseconds kTurn{1000};
constexpr milliseconds kShortAttempt{500};  // if a StopCheck must be polled
constexpr milliseconds kShortestPause{5};
constexpr milliseconds kLongestPause{200};
// Gives rank 0 time to start again after a failed start.
constexpr milliseconds kSecondChance{3000};
// Limits the wait for the hub to say who failed first. It answers at once unless it is what
// failed.
constexpr milliseconds kFirstFailure{500};
// Limits the wait for the hub's list of missing ranks.
constexpr milliseconds kMissing{500};
// Limits the wait for the hub to acknowledge that this rank leaves.
constexpr milliseconds kFarewell{500};

}  // namespace

Result<std::unique_ptr<ControlClient>> ControlClient::Join(const Options& options,
                                                           const Locate& locate, bool is_final,
                                                           const StopCheck& stop) {
  const auto start = Clock::now();
  const Deadline deadline = start + options.connect_timeout;
  std::unique_ptr<ControlClient> client(new ControlClient(options, deadline));
  client->SetStop(stop);
  Backoff backoff(kShortestPause, kLongestPause);
  std::string heard;  // why servers that have gone since did not admit this rank
  while (true) {
    if (stop && stop()) return Cancelled(options.rank, "joining");
    Result<UniqueId> id =
        locate(std::min(deadline, Clock::now() + (stop ? kShortAttempt : kAttempt)));
    Status status = id.status();
    if (id.ok()) {
      status = client->Attempt(id.value());
      if (status.ok()) break;
      const bool is_other_job = client->refusal_ && client->refusal_->is_other_job;
      if (status.code() == Code::kMismatch && !is_other_job) return status;
      if (client->first_failure_ || client->refusal_) {
        // The server may be that of another start, which has failed or is about to be complete.
        if (!options.is_address_reused || Clock::now() >= start + kSecondChance) return status;
        client->first_failure_.reset();
        client->refusal_.reset();
        heard = "; before that: " + status.text();
      }
      const bool is_right = is_final && id.value().more_addresses.empty();
      if (status.code() == Code::kNotAuthenticated && is_right) return status;
    }
    if (Clock::now() + backoff.next_pause() >= deadline) {
      // A rendezvous file may be left from a former job, but not until the deadline.
      const bool is_secret_wrong = status.code() == Code::kNotAuthenticated;
      std::string source = options.address_source.empty()
                               ? ""
                               : Format(" (address from {})", options.address_source);
      if (id.ok() && !id.value().more_addresses.empty()) {
        AppendFormat(&source, " (the last tried of {} addresses)",
                     1 + id.value().more_addresses.size());
      }
      return Error(is_secret_wrong ? status.code() : Code::kTimeout,
                   "rank {} of {}: not joined within {:.1f} s (ONEBIT_CONNECT_TIMEOUT_MS): {}{}{}",
                   options.rank, options.ranks, SecondsOf(options.connect_timeout), status.text(),
                   source,
                   !heard.empty()    ? heard
                   : is_secret_wrong ? ""
                                     : "; is rank 0 running, and can this host reach it?");
    }
    backoff.Pause();
  }
  ONEBIT_TRY(client->Watch());
  return client;
}

Status ControlClient::CheckUnclaimed(const Options& options, const UniqueId& id) {
  ControlClient client(options, Clock::now() + options.connect_timeout);
  const Status status = client.Attempt(id);
  client.channel_.reset();  // the hub takes the end of a rank that it has admitted for a failure
  if (client.refusal_) return status;
  if (!status.ok()) return OkStatus();
  return Error(Code::kMismatch,
               "rank {} of another job also waits at {}, under the same process name as this one, "
               "{}: give each job a rendezvous of its own",
               options.rank, id.address.Text(), options.process);
}

// Blocks, because the loop does not watch the connection yet.
Status ControlClient::Attempt(const UniqueId& id) {
  const milliseconds timeout = stop_ ? kShortAttempt : kAttempt;
  const Deadline deadline = std::min(connect_deadline_, Clock::now() + timeout);
  const auto explain = [&](const Status& status) {
    return Error(status.code(), "{}: {}", id.address.Text(), status.text());
  };
  const bool is_in_turn = !id.more_addresses.empty();
  ONEBIT_ASSIGN_OR_RETURN(
      Descriptor socket,
      Connect(id.address, is_in_turn ? std::min(deadline, Clock::now() + kTurn) : deadline));
  const ClientHello hello = MakeClientHello();
  ServerHello answer;
  if (Status status = SendAll(socket, &hello, sizeof(hello), deadline); !status.ok()) {
    return explain(status);
  }
  if (Status status = ReceiveAll(socket, &answer, sizeof(answer), deadline); !status.ok()) {
    return explain(status);
  }
  const auto checked = CheckServer(id.key, hello, answer);
  if (!checked.ok()) return explain(checked.status());
  const ClientAnswer& client = checked.value();
  if (Status status = SendAll(socket, client.proof.data(), client.proof.size(), deadline);
      !status.ok()) {
    return explain(status);
  }
  transport_key_ = MixedKey(id.key, "transport");
  ONEBIT_ASSIGN_OR_RETURN(local_address_, LocalAddress(socket));
  // Any of its own addresses leads a host to itself, but not the other hosts.
  const bool is_own_host = local_address_.HostText() == id.address.HostText();
  server_ =
      is_in_turn && is_own_host ? AnyAddress(id.address.family(), id.address.port()) : id.address;
  channel_ = std::make_unique<SealedChannel>(
      std::move(socket), client.keys.to_server, client.keys.to_client,
      MostHubMessageBytes(static_cast<uint32_t>(options_.ranks)));
  const onebit::Join join = {
      .rank = static_cast<uint32_t>(options_.rank),
      .ranks = static_cast<uint32_t>(options_.ranks),
      .heartbeat_ms = static_cast<uint32_t>(options_.heartbeat.count()),
      .loss_timeout_ms = static_cast<uint32_t>(options_.loss_timeout.count()),
      .process = options_.process,
      .job = options_.job};
  Status status = channel_->Send(Encode(RankMessage(join)));
  while (status.ok() && server_name_.empty() && !first_failure_ && !refusal_) {
    if (Clock::now() >= deadline) {
      status = Error(Code::kTimeout, "no answer in time");
      break;
    }
    status = AwaitReadable(channel_->socket(), deadline);
    if (!status.ok()) break;
    status = channel_->Receive([&](const Bytes& bytes) -> Status {
      ONEBIT_ASSIGN_OR_RETURN(HubMessage message, DecodeHubMessage(bytes));
      return OnMessage(std::move(message));
    });
  }
  // If the group failed after this rank joined, the rank's next operation returns the failure.
  if (!server_name_.empty()) return OkStatus();
  channel_.reset();
  if (first_failure_) return DescribeFailure(*first_failure_, options_.rank);
  if (refusal_) return refusal_->cause;
  return explain(status);
}

Status ControlClient::Watch() {
  ControlLoop& loop = ControlLoop::Get();
  std::lock_guard lock(loop.mutex());
  last_heard_ = Clock::now();
  next_heartbeat_ = last_heard_ + options_.heartbeat;
  ONEBIT_TRY(loop.Add(this));
  if (Status status = loop.Watch(this, channel_->socket().get(), EPOLLIN); !status.ok()) {
    loop.Remove(this);
    return status;
  }
  return OkStatus();
}

ControlClient::~ControlClient() {
  ControlLoop& loop = ControlLoop::Get();
  std::unique_lock lock(loop.mutex());
  listener_ = nullptr;
  if (channel_ != nullptr) {
    bool is_sent = true;
    try {
      DrainCalls();
      Send(Leave{});
    } catch (const std::bad_alloc&) {
      is_sent = false;  // the end of the connection then says the same
    }
    // Wait until the hub closes the connection: closed from here it might be reset before the hub
    // has read Leave. A hub in this process must also have sent MayEnd before the process ends.
    if (is_sent && (!first_failure_ || server_name_ == options_.process)) {
      changed_.wait_for(lock, kFarewell, [this] { return channel_ == nullptr; });
    }
  }
  loop.Remove(this);
}

Result<std::vector<Bytes>> ControlClient::Gather(std::span<const std::byte> mine, Deadline deadline,
                                                 std::string_view what) {
  if (mine.size() > kMaxContentBytes) {
    return Error(Code::kInternalError,
                 "rank {}: {}: {} bytes are to be sent to all ranks, but at most {} can be",
                 options_.rank, what, mine.size(), kMaxContentBytes);
  }
  std::unique_lock lock(ControlLoop::Get().mutex());
  const auto start = Clock::now();
  if (first_failure_) return DescribeFailure(*first_failure_, options_.rank);
  gathered_.reset();
  Send(onebit::Gather{.number = gather_number_, .content = {mine.begin(), mine.end()}});
  const auto is_settled = [this] { return gathered_ || first_failure_ || channel_ == nullptr; };
  const auto wait_until = [&](Deadline until) {
    return WaitUnlessStopped(changed_, lock, until, stop_, is_settled);
  };
  bool goes_on = wait_until(std::min(deadline, start + kPatience));
  if (goes_on && !is_settled() && !has_withdrawn_) {
    Send(Waits{.is_gather = true,
               .gathers = gather_number_,
               .calls = calls_made_,
               .what = std::string(what)});
  }
  if (goes_on && !is_settled()) goes_on = wait_until(deadline);
  if (!goes_on) return Cancelled(options_.rank, what);
  if (!is_settled()) {
    missing_.reset();  // the list of the last heartbeat may be out of date
    Send(WhoIsMissing{});
    changed_.wait_for(lock, kMissing, [&] { return is_settled() || missing_; });
  }
  if (gathered_) {
    ++gather_number_;
    std::vector<Bytes> contents = *std::move(gathered_);
    gathered_.reset();
    return contents;
  }
  if (first_failure_) return DescribeFailure(*first_failure_, options_.rank);
  if (channel_ == nullptr) {
    if (may_end_ && server_rank_) {
      return Error(Code::kRemoteError, "rank {}: {}: {}", options_.rank, what,
                   HasLeft(*server_rank_).text());
    }
    return Error(Code::kRemoteError, "rank {}: {}: the control channel has ended", options_.rank,
                 what);
  }
  return Error(Code::kTimeout, "rank {} of {}: {}: {} after {:.1f} s ({} at {})", options_.rank,
               options_.ranks, what, MissingText(), SecondsOf(Clock::now() - start), server_name_,
               server_.Text());
}

void ControlClient::SetServerRank(std::span<const std::string> processes) {
  std::lock_guard lock(ControlLoop::Get().mutex());
  const auto found = std::find(processes.begin(), processes.end(), server_name_);
  server_rank_.reset();
  if (found != processes.end()) server_rank_ = static_cast<int>(found - processes.begin());
}

void ControlClient::SetListener(FailureListener* listener) {
  std::lock_guard lock(ControlLoop::Get().mutex());
  listener_ = listener;
  // The failure may have come before there was a listener.
  if (listener_ != nullptr && first_failure_) listener_->OnRemoteFailure();
}

void ControlClient::EndJoining() {
  std::lock_guard lock(ControlLoop::Get().mutex());
  Control::EndJoining();
  has_joined_ = true;
}

Failure ControlClient::Report(const Failure& failure) {
  std::unique_lock lock(ControlLoop::Get().mutex());
  if (!first_failure_ && channel_ != nullptr) {
    onebit::Report report{.lost = {}, .cause = failure.cause};
    if (failure.is_loss) report.lost = static_cast<uint32_t>(failure.rank);
    DrainCalls();  // a difference between calls may be the cause of this failure
    Send(report);
    changed_.wait_for(lock, kFirstFailure,
                      [this] { return first_failure_ || channel_ == nullptr; });
  }
  if (!first_failure_) {
    if (failure.is_loss) lost_.insert(failure.rank);
    first_failure_ = failure;
    changed_.notify_all();
  }
  return *first_failure_;
}

std::optional<Failure> ControlClient::first_failure() const {
  std::lock_guard lock(ControlLoop::Get().mutex());
  return first_failure_;
}

std::vector<int> ControlClient::lost_ranks() const {
  std::lock_guard lock(ControlLoop::Get().mutex());
  return {lost_.begin(), lost_.end()};
}

void ControlClient::RecordCalls() {
  std::lock_guard lock(ControlLoop::Get().mutex());
  Control::RecordCalls();
}

void ControlClient::SendCalls() {
  if (!calls_->is_empty()) ControlLoop::Get().Wake();
}

void ControlClient::ReportWait(Waits waits) {
  std::lock_guard lock(ControlLoop::Get().mutex());
  if (has_withdrawn_) return;
  waits.gathers = gather_number_;
  Send(waits);
}

void ControlClient::WithdrawWait() {
  ReportWait({});
  std::lock_guard lock(ControlLoop::Get().mutex());
  has_withdrawn_ = true;
}

void ControlClient::OnEvent(int, uint32_t events) {
  // Read before sending: messages of the hub count even if nothing can be sent to it any more.
  Status status = channel_->Receive([&](const Bytes& bytes) -> Status {
    ONEBIT_ASSIGN_OR_RETURN(HubMessage message, DecodeHubMessage(bytes));
    last_heard_ = Clock::now();
    return OnMessage(std::move(message));
  });
  if (status.ok() && (events & EPOLLOUT) != 0) {
    status = channel_->Flush();
    if (status.ok() && !channel_->has_unsent()) {
      ControlLoop::Get().Change(channel_->socket().get(), EPOLLIN);
      DrainCalls();
    }
  }
  if (!status.ok()) CloseChannel(status.text());
}

Clock::time_point ControlClient::OnTimer(Clock::time_point now) {
  DrainCalls();
  if (channel_ == nullptr) return Clock::time_point::max();
  const Clock::duration silence = now - last_heard_;
  const bool is_lossy = silence >= options_.loss_timeout && channel_->IsLossy();
  const milliseconds longest = LongestSilence(options_.loss_timeout, is_lossy);
  if (silence >= longest && !may_end_) {
    GiveUpServer(SilenceText(silence, is_lossy));
    return Clock::time_point::max();
  }
  if (now >= next_heartbeat_) {
    next_heartbeat_ = now + options_.heartbeat;
    Send(RankAlive{});
  }
  return may_end_ ? next_heartbeat_ : std::min(next_heartbeat_, last_heard_ + longest);
}

void ControlClient::OnOutOfMemory() {
  if (channel_ != nullptr) {
    ControlLoop::Get().Unwatch(channel_->socket().get());
    channel_.reset();
  }
  if (!first_failure_ && !may_end_) {
    first_failure_.emplace(Failure{
        .rank = options_.rank, .is_loss = false, .cause = {Code::kOutOfMemory, "out of memory"}});
    if (listener_ != nullptr) listener_->OnRemoteFailure();
  }
  changed_.notify_all();
}

Status ControlClient::OnMessage(HubMessage message) {
  if (auto* joined = std::get_if<Joined>(&message)) {
    comm_id_ = joined->comm_id;
    server_name_ = std::move(joined->process);
  } else if (auto* gathered = std::get_if<Gathered>(&message)) {
    if (gathered->number != gather_number_ ||
        gathered->contents.size() != static_cast<size_t>(options_.ranks)) {
      return Error(Code::kCorrupt,
                   "its answer to a gather has the wrong number, or the wrong ranks");
    }
    gathered_ = std::move(gathered->contents);
  } else if (auto* failed = std::get_if<Failed>(&message)) {
    SetFailure(std::move(failed->first));
  } else if (auto* alive = std::get_if<HubAlive>(&message)) {
    missing_ = std::move(*alive);
  } else if (auto* refused = std::get_if<Refused>(&message)) {
    refusal_ = std::move(*refused);
  } else {
    may_end_ = true;
  }
  changed_.notify_all();
  return OkStatus();
}

void ControlClient::Send(const RankMessage& message) {
  if (channel_ == nullptr) return;
  // The loop notices a broken connection when it reads, after it has read what the hub sent before.
  static_cast<void>(channel_->Send(Encode(message)));
  if (channel_->has_unsent()) {
    ControlLoop::Get().Change(channel_->socket().get(), EPOLLIN | EPOLLOUT);
  }
}

void ControlClient::DrainCalls() {
  if (calls_ == nullptr) return;
  if (channel_ == nullptr || first_failure_) return calls_->Clear();  // nobody compares any more
  // Records that the socket does not take stay in the ring until it is writable again.
  while (!channel_->has_unsent()) {
    const auto calls = calls_->Take();
    if (!calls) break;
    Send(*calls);
  }
}

// The hub usually runs in the process of a rank and ends with it.
void ControlClient::CloseChannel(std::string_view why) {
  ControlLoop::Get().Unwatch(channel_->socket().get());
  channel_.reset();
  if (!may_end_) SetFailure(LossOfServer(why));
  changed_.notify_all();
}

// Reports the loss to the hub as well: if its process was only stopped, it reads the reason when it
// continues, instead of finding ranks that seem to have ended.
void ControlClient::GiveUpServer(std::string_view why) {
  const Failure loss = LossOfServer(why);
  onebit::Report report{.lost = {}, .cause = loss.cause};
  if (loss.is_loss) report.lost = static_cast<uint32_t>(loss.rank);
  Send(report);
  Send(Leave{});
  CloseChannel(why);
}

Failure ControlClient::LossOfServer(std::string_view why) const {
  // The process that made the unique id need not be a rank.
  if (!server_rank_) {
    return {.rank = options_.rank,
            .is_loss = false,
            .cause = Error(Code::kRemoteError,
                           "rank {}: process {}, which holds the control channel of this "
                           "communicator at {}, {}",
                           options_.rank, server_name_, server_.Text(), why)};
  }
  return {.rank = *server_rank_,
          .is_loss = true,
          .cause = Error(Code::kPeerLost,
                         "its process {}, which holds the control channel of this communicator at "
                         "{}, {}",
                         server_name_, server_.Text(), why)};
}

void ControlClient::SetFailure(Failure failure) {
  if (failure.is_loss) lost_.insert(failure.rank);
  if (first_failure_) return;
  first_failure_ = std::move(failure);
  const bool is_own = first_failure_->rank == options_.rank && !first_failure_->is_loss &&
                      !first_failure_->is_of_group;
  if (listener_ != nullptr && !is_own) listener_->OnRemoteFailure();
}

std::string ControlClient::MissingText() const {
  if (!missing_ || missing_->missing == 0) return "no answer";
  const std::vector<int> known_as = has_joined_ ? std::vector<int>() : options_.known_as;
  std::string text = known_as.empty() ? "" : "former ";
  text += missing_->missing == 1 ? "rank" : "ranks";
  for (const uint32_t rank : missing_->some_missing) {
    const bool is_renamed = rank < known_as.size();
    AppendFormat(&text, " {}", is_renamed ? known_as[rank] : static_cast<int>(rank));
  }
  if (missing_->some_missing.size() < missing_->missing) text += " ...";
  AppendFormat(&text, " missing ({} of {})", missing_->missing, options_.ranks);
  if (!missing_->note.empty()) AppendFormat(&text, ", but {},", missing_->note);
  return text;
}

}  // namespace onebit
