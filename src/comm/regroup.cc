// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/regroup.h"

#include <algorithm>

#include "base/log.h"
#include "comm/host_claim.h"
#include "comm/rank_list.h"

namespace onebit {
namespace {

using std::chrono::milliseconds;

// The arguments of one rank in a split.
struct SplitRequest {
  int color = Regroup::kNoColor;
  int key = 0;
};

Bytes Encode(const SplitRequest& request) {
  return ByteWriter()
      .Integer(static_cast<uint32_t>(request.color))
      .Integer(static_cast<uint32_t>(request.key))
      .Take();
}

Result<std::vector<SplitRequest>> DecodeSplitRequests(const std::vector<Bytes>& contents) {
  std::vector<SplitRequest> requests;
  for (size_t rank = 0; rank < contents.size(); ++rank) {
    ByteReader reader(contents[rank]);
    const auto color = static_cast<int>(reader.Integer<uint32_t>());
    const auto key = static_cast<int>(reader.Integer<uint32_t>());
    if (!reader.is_complete()) {
      return Error(Code::kCorrupt,
                   "color and key of rank {} cannot be read ({} bytes): do all ranks have the same "
                   "version of onebit?",
                   rank, contents[rank].size());
    }
    requests.push_back({color, key});
  }
  return requests;
}

// Returns the ranks with the color of `rank`, in the order of their new ranks.
std::vector<int> MembersOf(const std::vector<SplitRequest>& requests, int rank) {
  const auto request = [&](int r) { return requests[static_cast<size_t>(r)]; };
  std::vector<int> members;
  for (int r = 0; r < static_cast<int>(requests.size()); ++r) {
    if (request(r).color == request(rank).color) members.push_back(r);
  }
  std::ranges::stable_sort(members, {}, [&](int r) { return request(r).key; });
  return members;
}

int PositionOf(std::span<const int> members, int rank) {
  return static_cast<int>(std::ranges::find(members, rank) - members.begin());
}

// The data that threads of a group exchange before they connect.
struct LocalIntroduction {
  AgreedValues values;
  std::string host;  // CommOptions::host
  Bytes address;
};

Bytes Encode(const LocalIntroduction& introduction) {
  ByteWriter writer;
  writer.Block(introduction.address);
  writer.Text(introduction.host);
  Append(introduction.values, &writer);
  return writer.Take();
}

LocalIntroduction DecodeLocal(const Bytes& bytes) {
  ByteReader reader(bytes);
  const auto address = reader.Block();
  LocalIntroduction introduction{
      .values = {}, .host = reader.Text(), .address = {address.begin(), address.end()}};
  introduction.values = ReadAgreed(&reader);
  return introduction;
}

Status Explained(const Status& status, std::span<const int> members) {
  return Error(status.code(), "{} (making a communicator of {})", status.text(),
               members.empty() ? "the ranks that remain"
                               : Format("the former ranks {}", TextOfRanks(members)));
}

milliseconds RegroupTime(const CommOptions& options) {
  return milliseconds(options.regroup_timeout_ms);
}

}  // namespace

Result<std::unique_ptr<Comm>> Regroup::Split(int color, int key) {
  // An invalid color is reported to all ranks, which would otherwise wait for this one.
  ONEBIT_ASSIGN_OR_RETURN(const std::vector<Bytes> contents,
                          comm_.Gather(Encode(SplitRequest{color, key}),
                                       std::chrono::steady_clock::now() + RegroupTime(options()),
                                       "splitting the communicator"));
  ONEBIT_ASSIGN_OR_RETURN(const std::vector<SplitRequest> requests, DecodeSplitRequests(contents));
  for (size_t rank = 0; rank < requests.size(); ++rank) {
    if (requests[rank].color >= kNoColor) continue;
    return Error(Code::kInvalidArgument,
                 "rank {}: the color of rank {} is {}: it must be 0 or more, or "
                 "ONEBIT_SPLIT_NOCOLOR ({})",
                 comm_.rank(), rank, requests[rank].color, kNoColor);
  }
  if (color == kNoColor) return std::unique_ptr<Comm>();
  return JoinMembers(MembersOf(requests, comm_.rank()));
}

Result<std::unique_ptr<Comm>> Regroup::Shrink(std::span<const int> excluded) {
  const std::vector<int> lost = comm_.FindLostRanks();
  const auto has = [](std::span<const int> list, int rank) {
    return std::ranges::binary_search(list, rank);
  };
  std::vector<int> members;
  for (int rank = 0; rank < comm_.ranks(); ++rank) {
    const bool is_out =
        excluded.empty() ? has(lost, rank) && rank != comm_.rank() : has(excluded, rank);
    if (!is_out) members.push_back(rank);
  }
  if (members.size() > 1 && comm_.is_stopped() && !comm_.transport_->properties().survivesLoss) {
    return Error(
        Code::kInvalidUsage,
        "rank {}: transport {} cannot make another communicator once one has failed: start "
        "the job again from a checkpoint",
        comm_.rank(), comm_.transport_name());
  }
  if (excluded.empty() && comm_.local_group_ != nullptr) {
    if (has(lost, comm_.rank())) {
      return Error(Code::kInvalidUsage,
                   "rank {}: the other ranks gave up on this one, so it cannot remain: {}",
                   comm_.rank(), comm_.failure().text());
    }
    members = comm_.local_group_->Present(lost);
  }
  if (excluded.empty() && comm_.local_group_ == nullptr) members.clear();
  // While this communicator is healthy another rank may go on with calls on it, and the ranks would
  // wait for each other. Ranks of a list may do so: they need not call this.
  const bool has_reported = excluded.empty() && !comm_.is_stopped();
  if (has_reported) {
    comm_.control_->ReportWait(
        {.is_gather = true, .calls = comm_.sequence_, .what = "shrinking the communicator"});
  }
  auto joined = JoinMembers(members);
  // Ranks return at different times, so a call that follows on one may precede the return of
  // another.
  if (has_reported) comm_.control_->WithdrawWait();
  if (joined.ok() && excluded.empty() && comm_.local_group_ != nullptr) {
    std::vector<int> missing;
    for (int rank = 0; rank < comm_.ranks(); ++rank) {
      if (!has(members, rank)) missing.push_back(rank);
    }
    std::lock_guard lock(comm_.failure_mutex_);
    comm_.left_out_ = std::move(missing);
  }
  return joined;
}

Result<std::unique_ptr<Comm>> Regroup::JoinMembers(std::span<const int> members) {
  if (members.size() == 1) return JoinAlone();
  if (comm_.local_group_ != nullptr) return JoinThreads(members);
  auto joined = JoinProcesses(members);
  if (!joined.ok()) return Explained(joined.status(), members);
  return joined;
}

Result<std::unique_ptr<Comm>> Regroup::JoinAlone() const {
  ONEBIT_ASSIGN_OR_RETURN(const Transport* local, Transport::Get("local"));
  ONEBIT_ASSIGN_OR_RETURN(auto alone, Comm::CreateLocalGroup(*local, 1, options()));
  return std::move(alone.front());
}

Result<std::unique_ptr<Comm>> Regroup::JoinProcesses(std::span<const int> members) {
  // A rank that is lost while the others join makes them meet again, without it.
  constexpr int kMostAttempts = 8;
  MeetingPoint& point = *comm_.fallback_->point;
  const StopCheck stop = StopOfThisCall();
  const Deadline deadline = std::chrono::steady_clock::now() + RegroupTime(options());
  for (int attempt = 1;; ++attempt) {
    ONEBIT_ASSIGN_OR_RETURN(const auto agreement,
                            point.Meet({.members = {members.begin(), members.end()},
                                        .grace = milliseconds(options().shrink_grace_ms),
                                        .needs_quorum = options().is_quorum_needed,
                                        .deadline = deadline},
                                       stop));
    auto joined = JoinAgreed(agreement);
    const bool is_broken = point.is_broken();
    point.End(joined.ok());
    if (joined.ok()) {
      Comm& made = *joined.value();
      made.former_points_ = comm_.former_points_;
      if (members.empty()) {
        if (!agreement.missing.empty()) made.former_points_.push_back(comm_.fallback_->point);
        Log(LogLevel::kInfo, "communicator {:08x}: ranks {} of {:08x}, without {}", made.id(),
            TextOfRanks(agreement.members), comm_.id(), TextOfRanks(agreement.missing));
        std::lock_guard lock(comm_.failure_mutex_);
        comm_.left_out_ = agreement.missing;
      }
      return joined;
    }
    const Code code = joined.status().code();
    // The join was stopped as onebitCommAbort stops it.
    if (is_broken && code == Code::kAborted && !stop()) {
      joined = Error(Code::kPeerLost, "rank {}: a rank that had met was lost before all had joined",
                     comm_.rank());
    }
    const bool is_worth_another = code == Code::kPeerLost || code == Code::kRemoteError ||
                                  (is_broken && code != Code::kMismatch);
    if (stop() || !is_worth_another || attempt == kMostAttempts ||
        std::chrono::steady_clock::now() >= deadline) {
      return joined;
    }
    Log(LogLevel::kInfo, "rank {}: ranks meet again, because joining failed: {}", comm_.rank(),
        joined.status().text());
  }
}

Result<std::unique_ptr<Comm>> Regroup::JoinAgreed(const MeetingPoint::Agreement& agreement) const {
  const std::vector<int>& members = agreement.members;
  if (members.size() == 1) return JoinAlone();
  JoinOptions options = options_ == nullptr ? comm_.fallback_->options : *options_;
  options.comm = OptionsOnThisHost();
  options.control.rank = PositionOf(members, comm_.rank());
  options.control.ranks = static_cast<int>(members.size());
  options.control.connect_timeout = RegroupTime(options.comm);
  options.control.process = comm_.fallback_->options.control.process;
  options.control.known_as = members;
  options.control.address_source = "the ranks' meeting";
  options.control.is_address_reused = false;
  options.locate = [id = agreement.id](Deadline) { return Result<UniqueId>(id); };
  options.is_location_final = true;
  options.transport = comm_.fallback_->options.transport;
  options.group = nullptr;  // that of this communicator, if there was one
  options.interfaces = comm_.fallback_->options.interfaces;
  const StopCheck stop = StopOfThisCall();
  return Comm::Join(options, [&] { return stop() || comm_.fallback_->point->is_broken(); });
}

Result<std::unique_ptr<Comm>> Regroup::JoinThreads(std::span<const int> members) const {
  ONEBIT_TRY(comm_.CheckOtherThreads(static_cast<int>(members.size())));
  const auto group = comm_.local_group_->Subgroup(members, comm_.rank());
  std::unique_ptr<Comm> comm(new Comm(PositionOf(members, comm_.rank()),
                                      static_cast<int>(members.size()), group->id(),
                                      OptionsOnThisHost(), *comm_.transport_));
  comm->are_ranks_threads_ = true;
  comm->sharing_ranks_ = members.size();
  comm->local_group_ = group;
  // Failures of other ranks abort the endpoint, so it must exist before this rank listens.
  auto endpoint = Endpoint::Open(
      *comm_.transport_,
      {.rank = comm->rank(), .nranks = comm->ranks(), .comm_id = comm->id(), .sink = comm.get()});
  if (endpoint.ok()) comm->endpoint_ = std::move(endpoint).value();
  FailureListener* listener = comm.get();
  comm->control_ = std::make_unique<LocalControl>(group, comm->rank(), listener);
  comm->control_->SetStop(StopOfThisCall());
  Status status = endpoint.ok() ? Connect(comm.get()) : endpoint.status();
  if (!status.ok()) return Explained(comm->Fail(std::move(status)), members);
  comm->control_->EndJoining();
  Log(LogLevel::kInfo, "communicator {:08x}: ranks {} of {:08x}", comm->id(), TextOfRanks(members),
      comm_.id());
  return comm;
}

CommOptions Regroup::OptionsOnThisHost() const {
  CommOptions options = this->options();
  options.host = Format("{}", comm_.hosts_.HostOf(static_cast<uint32_t>(comm_.rank())));
  options.host_ranks = 0;
  return options;
}

// Aborting this communicator also cancels the creation of another one from it.
StopCheck Regroup::StopOfThisCall() const {
  return [&comm = comm_, before = comm_.aborts_.load(std::memory_order_acquire)] {
    return comm.aborts_.load(std::memory_order_acquire) != before;
  };
}

Status Regroup::Connect(Comm* comm) {
  constexpr std::string_view kWhat = "making a communicator of some ranks";
  const Deadline deadline = std::chrono::steady_clock::now() + RegroupTime(comm->options());
  ONEBIT_ASSIGN_OR_RETURN(const Bytes address, comm->endpoint_.Address());
  ONEBIT_ASSIGN_OR_RETURN(
      const std::vector<Bytes> contents,
      comm->Gather(Encode(LocalIntroduction{.values = AgreedOptions(comm->options()),
                                            .host = comm->options().host,
                                            .address = address}),
                   deadline, kWhat));
  std::vector<AgreedValues> values;
  std::vector<HostClaim> claims;
  std::vector<Bytes> addresses;
  for (const Bytes& content : contents) {
    LocalIntroduction one = DecodeLocal(content);
    values.push_back(std::move(one.values));
    claims.push_back({.word = std::move(one.host)});
    addresses.push_back(std::move(one.address));
  }
  ONEBIT_TRY(CompareAgreed(values));
  ONEBIT_ASSIGN_OR_RETURN(comm->hosts_, MapHosts(claims, comm->options().host_ranks));
  ONEBIT_TRY(comm->endpoint_.Connect(addresses, comm->options().regroup_timeout_ms));
  // No endpoint may close before all are connected.
  return comm->Gather({}, deadline, kWhat).status();
}

}  // namespace onebit
