// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Creates, enters and stops communicators, and keeps the root cause of a stop.
#include "comm/comm.h"

#include <algorithm>
#include <chrono>
#include <new>

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#endif

#include "base/log.h"
#include "comm/host_claim.h"
#include "comm/introduction.h"
#include "comm/local_control.h"
#include "comm/rank_list.h"
#include "topology/near_cores.h"
#include "wait/backoff.h"

namespace onebit {
namespace {

constexpr std::chrono::milliseconds kTimeToReport{2000};

// Other ranks reach this process at the address it uses towards the control server. A server that
// listens on every interface tells its own host no address that the others can use.
SocketAddress SpareAddress(const ControlClient& control) {
  return control.server().is_any() ? control.server() : control.local_address();
}

uint64_t MillisecondsUntil(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<uint64_t>(std::max<int64_t>(left.count(), 1));
}

// Joins only to report the failure, because the other ranks would wait for this one. If all ranks
// have the same problem, rank 0 may be gone already.
Status CannotTakePart(const JoinOptions& options, const Status& cause) {
  ControlClient::Options control = options.control;
  control.connect_timeout = std::min(control.connect_timeout, kTimeToReport);
  const auto joined = ControlClient::Join(control, options.locate, options.is_location_final);
  if (!joined.ok()) return cause;
  static_cast<void>(
      joined.value()->Report({.rank = control.rank, .is_loss = false, .cause = cause}));
  return cause;
}

// True only if that is certain. While the only thread of a process blocks, no other can be started.
bool IsOnlyThreadOfProcess() {
#if __has_include(<sys/single_threaded.h>)
  return __libc_single_threaded != 0;
#else
  return false;
#endif
}

}  // namespace

AgreedValues AgreedOptions(const CommOptions& options) {
  const auto text_of = [](const std::optional<uint64_t>& value) {
    return value.has_value() ? Format("{}", *value) : "auto";
  };
  return {
      {"ONEBIT_ONE_EXCHANGE_ELEMENTS", text_of(options.one_exchange_elements)},
      {"ONEBIT_GROUP_ELEMENTS", text_of(options.group_elements)},
      {"ONEBIT_TWO_LEVEL_BYTES", text_of(options.two_level_bytes)},
      {"ONEBIT_SEGMENT_ELEMENTS", Format("{}", options.segment_elements)},
      {"ONEBIT_QUORUM", options.is_quorum_needed ? "1" : "0"},
      {"ONEBIT_HOST_RANKS", Format("{}", options.host_ranks)},
  };
}

Status CompareOptions(std::span<const CommOptions> options_by_rank) {
  std::vector<AgreedValues> values;
  for (const CommOptions& options : options_by_rank) values.push_back(AgreedOptions(options));
  return CompareAgreed(values);
}

Result<std::vector<std::unique_ptr<Comm>>> Comm::CreateLocalGroup(const Transport& transport,
                                                                  int ranks,
                                                                  const CommOptions& options) {
  return CreateLocalGroup(transport, std::vector<CommOptions>(static_cast<size_t>(ranks), options));
}

Result<std::vector<std::unique_ptr<Comm>>> Comm::CreateLocalGroup(
    const Transport& transport, std::span<const CommOptions> options_by_rank) {
  ONEBIT_TRY(CompareOptions(options_by_rank));
  return CreateLocalGroupUnchecked(transport, options_by_rank);
}

Result<std::vector<std::unique_ptr<Comm>>> Comm::CreateLocalGroupUnchecked(
    const Transport& transport, std::span<const CommOptions> options_by_rank) {
  const int ranks = static_cast<int>(options_by_rank.size());
  const auto group = std::make_shared<LocalGroup>(ranks);
  const uint32_t id = group->id();
  std::vector<std::unique_ptr<Comm>> comms;
  std::vector<std::vector<std::byte>> addresses;
  std::vector<HostClaim> claims;
  for (const CommOptions& options : options_by_rank) claims.push_back({.word = options.host});
  ONEBIT_ASSIGN_OR_RETURN(const HostMap hosts, MapHosts(claims, options_by_rank[0].host_ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    comms.push_back(std::unique_ptr<Comm>(
        new Comm(rank, ranks, id, options_by_rank[static_cast<size_t>(rank)], transport)));
    Comm& comm = *comms.back();
    comm.hosts_ = hosts;
    comm.are_ranks_threads_ = true;
    comm.local_group_ = group;
    comm.sharing_ranks_ = options_by_rank.size();
    ONEBIT_ASSIGN_OR_RETURN(
        comm.endpoint_,
        Endpoint::Open(transport, {.rank = rank, .nranks = ranks, .comm_id = id, .sink = &comm}));
    ONEBIT_ASSIGN_OR_RETURN(auto address, comm.endpoint_.Address());
    addresses.push_back(std::move(address));
  }
  for (const auto& comm : comms) {
    ONEBIT_TRY(comm->endpoint_.Connect(addresses, comm->options_.timeout_ms));
  }
  for (const auto& comm : comms) {
    FailureListener* listener = comm.get();
    comm->control_ = std::make_unique<LocalControl>(group, comm->rank_, listener);
  }
  Log(LogLevel::kInfo, "communicator {:08x}: {} ranks on {}, transport {}", id, ranks, hosts.Text(),
      transport.properties().name);
  return comms;
}

// Processes meet on the control channel, compare what must be equal, and connect through the
// transport.
Result<std::unique_ptr<Comm>> Comm::Join(const JoinOptions& options, const StopCheck& stop) {
  const auto transport = Transport::Get(options.transport);
  if (!transport.ok()) return CannotTakePart(options, transport.status());
  ONEBIT_ASSIGN_OR_RETURN(
      std::unique_ptr<ControlClient> joined,
      ControlClient::Join(options.control, options.locate, options.is_location_final, stop));
  ControlClient* const control = joined.get();
  // From here on the others wait for this rank, so its errors are reported to them.
  const auto fail = [&](const Status& cause) {
    const int self = options.control.rank;
    return DescribeFailure(control->Report({.rank = self, .is_loss = false, .cause = cause}), self);
  };
  auto spare = OpenSparePort({.interfaces = options.interfaces}, SpareAddress(*control));
  if (!spare.ok()) return fail(spare.status());
  // The transport listens where survivors would meet: that address is known to be reachable.
  SocketAddress address = spare.value().id.address;
  address.set_port(0);
  auto found = Introduce(options, *transport.value(), spare.value().id, control);
  if (!found.ok()) {
    const Status& status = found.status();
    return status.code() == Code::kMismatch ? status : fail(status);
  }
  const uint64_t id = control->comm_id();
  const int rank = options.control.rank;
  const int ranks = options.control.ranks;
  std::unique_ptr<Comm> comm(
      new Comm(rank, ranks, static_cast<uint32_t>(id), options.comm, *transport.value()));
  const bool is_one_host = found.value().is_one_host;
  comm->sharing_ranks_ = found.value().sharing_ranks;
  comm->hosts_ = std::move(found.value().hosts);
  auto point = MeetingPoint::Open(std::move(spare).value(), rank, std::move(found.value().spares));
  if (!point.ok()) return fail(point.status());
  comm->fallback_ = Fallback{.options = options, .point = std::move(point).value()};
  comm->fallback_->options.group = nullptr;
  comm->control_ = std::move(joined);  // ends before what it reports to, whatever happens
  auto endpoint = Endpoint::Open(
      *transport.value(), {.rank = rank,
                           .nranks = ranks,
                           .comm_id = id,
                           .sink = comm.get(),
                           .group = options.group == nullptr ? nullptr : options.group->handle(),
                           .key = control->transport_key().bytes.data(),
                           .address = address.get(),
                           .address_bytes = address.size(),
                           .server = control->server().get(),
                           .server_bytes = control->server().size(),
                           .is_one_host = is_one_host});
  if (!endpoint.ok()) return fail(endpoint.status());
  comm->endpoint_ = std::move(endpoint).value();
  if (Status status = comm->ConnectTo(control); !status.ok()) return fail(status);
  control->EndJoining();
  Log(LogLevel::kInfo,
      "communicator {:08x}: rank {} of {} on {}, transport {}, control channel at {}", comm->id_,
      rank, ranks, comm->hosts_.Text(), transport.value()->properties().name,
      control->server().Text());
  return comm;
}

Status Comm::ConnectTo(ControlClient* control) {
  ONEBIT_ASSIGN_OR_RETURN(const Bytes mine, endpoint_.Address());
  ONEBIT_ASSIGN_OR_RETURN(
      const std::vector<Bytes> addresses,
      control->Gather(mine, control->connect_deadline(), "exchanging addresses"));
  // From here on the loss or failure of a rank ends the wait for it.
  control->SetListener(this);
  ONEBIT_TRY(endpoint_.Connect(addresses, MillisecondsUntil(control->connect_deadline())));
  // No endpoint may close before all are connected.
  return control->Gather({}, control->connect_deadline(), "waiting for all ranks to connect")
      .status();
}

CpuSet Comm::FindCpuSet() const {
  if (options_.compute_threads.has_value())
    return {.threads = static_cast<uint32_t>(*options_.compute_threads)};
  // Reading the topology is slow, and often not needed for the answer.
  const Placement here = PlacementOfThisThread();
  if (ThreadsToSpare(here.processor_count(), sharing_ranks_) == 0) return {};
  NearCores near = CoresNearThisThread();
  return {.threads = ThreadsToSpare(near.count, sharing_ranks_),
          .processors = std::move(near.processors)};
}

Comm::~Comm() {
  // OnRemoteFailure must not be called while the endpoint is destroyed.
  control_.reset();
  if (fallback_) fallback_->point->Leave();
}

Status Comm::Acquire() {
  if (is_in_call_.exchange(true, std::memory_order_acquire)) {
    return Error(Code::kInvalidUsage,
                 "rank {}: another thread is inside a call on this communicator; use one thread at "
                 "a time",
                 rank_);
  }
  return OkStatus();
}

Status Comm::CheckUsable() {
  if (is_stopped()) {
    const Status cause = FindFailure();
    return {cause.code(),
            Format("{} (the communicator is out of use: destroy it, or shrink it first "
                   "to go on with the ranks that remain)",
                   cause.text())};
  }
  if (is_finalized_.load(std::memory_order_acquire)) {
    return Error(Code::kInvalidUsage,
                 "rank {}: the communicator was finalized: only onebitCommDestroy is left", rank_);
  }
  return OkStatus();
}

Status Comm::Enter(int ranks_here) {
  ONEBIT_TRY(Acquire());
  Status status = CheckUsable();
  if (status.ok()) status = CheckOtherThreads(ranks_ - ranks_here + 1);
  if (!status.ok()) Exit();
  return status;
}

Status Comm::CheckOtherThreads(int ranks) const {
  if (!are_ranks_threads_ || ranks == 1 || !IsOnlyThreadOfProcess()) return OkStatus();
  return Error(Code::kInvalidUsage,
               "rank {} of {}: this call waits for the other ranks, and this is the only thread of "
               "the process; make the calls of each rank on a thread of its own",
               rank_, ranks_);
}

Result<std::vector<Bytes>> Comm::Gather(std::span<const std::byte> mine, Deadline deadline,
                                        std::string_view what) {
  control_->SetCallsMade(sequence_);
  auto contents = control_->Gather(ByteWriter().Text(what).Block(mine).Take(), deadline, what);
  if (!contents.ok()) return Fail(contents.status());
  for (size_t rank = 0; rank < contents.value().size(); ++rank) {
    Bytes& content = contents.value()[rank];
    ByteReader reader(content);
    const std::string theirs = reader.Text();
    const auto block = reader.Block();
    if (!reader.is_complete() || theirs != what) {
      return Fail(Error(Code::kMismatch, "rank {}: the ranks' calls differ: {} here, {} on rank {}",
                        rank_, what, theirs, rank));
    }
    content = Bytes(block.begin(), block.end());
  }
  return contents;
}

Status Comm::FindFailure() {
  if (!is_stopped()) return OkStatus();
  const Status cause = Fail(OkStatus());
  const std::vector<int> lost = FindLostRanks();
  if (lost.size() < 2) return cause;
  return {cause.code(), Format("{} (lost so far: ranks {})", cause.text(), TextOfRanks(lost))};
}

std::vector<int> Comm::FindLostRanks() {
  if (is_stopped()) static_cast<void>(Fail(OkStatus()));
  {
    std::lock_guard lock(failure_mutex_);
    if (left_out_) return *left_out_;
  }
  return control_ == nullptr ? std::vector<int>() : control_->lost_ranks();
}

void Comm::Exit() { is_in_call_.store(false, std::memory_order_release); }

Status Comm::StatusOf(const Failure& failure, const std::string& situation) const {
  Status status = DescribeFailure(failure, rank_);
  if (situation.empty() || (failure.rank == rank_ && !failure.is_loss)) return status;
  return Error(status.code(), "{} (rank {} was {})", status.text(), rank_, situation);
}

Status Comm::Record(Status cause) {
  std::lock_guard lock(failure_mutex_);
  if (failure_.ok()) failure_ = std::move(cause);
  is_stopped_.store(true, std::memory_order_release);
  return failure_;
}

Status Comm::Fail(Status cause, const std::string& situation) {
  try {
    return Decide(std::move(cause), situation);
  } catch (const std::bad_alloc&) {
    return FailWithoutMemory();
  }
}

Status Comm::Decide(Status cause, const std::string& situation) {
  if (const Status failure = this->failure(); !failure.ok()) return failure;
  auto first = control_ == nullptr ? std::nullopt : control_->first_failure();
  if (!first) {
    const Failure own = OwnCause(std::move(cause), situation);
    // All ranks name the first failure. Peers see consequences of this failure only after the group
    // has it, so no consequence is reported before its cause.
    first = control_ == nullptr ? own : control_->Report(own);
  }
  const Status failure = Record(StatusOf(*first, situation));
  // The rank that decides logs. An abort is the application's own wish, and a lost rank cannot log.
  const bool is_ours = first->is_loss || first->rank == rank_;
  Log(is_ours && failure.code() != Code::kAborted ? LogLevel::kWarn : LogLevel::kInfo, "{}",
      failure.text());
  return failure;
}

Status Comm::FailWithoutMemory() noexcept {
  constexpr const char* kText = "out of memory";  // short enough for a Status without allocation
  try {
    return Decide({Code::kOutOfMemory, kText}, {});  // there may be enough memory for this
  } catch (const std::bad_alloc&) {
  }
  AbortEndpoint();
  {
    std::lock_guard lock(failure_mutex_);
    if (failure_.ok()) failure_ = {Code::kOutOfMemory, kText};
  }
  is_stopped_.store(true, std::memory_order_release);
  return {Code::kOutOfMemory, kText};
}

Failure Comm::OwnCause(Status cause, const std::string& situation) {
  std::lock_guard lock(failure_mutex_);
  if (peer_error_ && (cause.ok() || cause.code() != Code::kMismatch)) {
    Failure failure = *peer_error_;
    if (!situation.empty() && !failure.is_loss) {
      failure.cause = Error(failure.cause.code(), "{} ({})", failure.cause.text(), situation);
    }
    return failure;
  }
  if (cause.ok()) cause = Error(Code::kInternalError, "rank {}: stopped without a cause", rank_);
  return {.rank = rank_, .is_loss = false, .cause = std::move(cause)};
}

Status Comm::failure() const {
  std::lock_guard lock(failure_mutex_);
  return failure_;
}

void Comm::Abort() {
  aborts_.fetch_add(1, std::memory_order_acq_rel);
  static_cast<void>(
      Fail(Error(Code::kAborted, "rank {}: onebitCommAbort was called on this rank", rank_)));
  AbortEndpoint();
  // The call inside sees the stop between two steps, which are short. Once it has left, the caller
  // owns its buffers again.
  PollUntil(kNoDeadline, [this] { return !is_in_call(); });
}

void Comm::OnPeerError(int peer, Code code, const char* text) {
  {
    std::lock_guard lock(failure_mutex_);
    if (!peer_error_) peer_error_ = PeerFailure(peer, code, text);
  }
  is_stopped_.store(true, std::memory_order_release);
}

// Called by a transport, through which nothing may be thrown; without memory the text is empty.
Failure Comm::PeerFailure(int peer, Code code, const char* text) const noexcept {
  const bool is_loss = code == Code::kPeerLost;
  Failure failure{.rank = is_loss ? peer : rank_, .is_loss = is_loss, .cause = {}};
  try {
    failure.cause = is_loss ? Error(code, "{} (seen by rank {})", text, rank_)
                            : Error(Code::kRemoteError, "rank {}: {}", rank_, text);
  } catch (const std::bad_alloc&) {
    failure.cause = Status(is_loss ? code : Code::kRemoteError, "");
  }
  return failure;
}

void Comm::OnRemoteFailure() {
  is_stopped_.store(true, std::memory_order_release);
  AbortEndpoint();
}

void Comm::AbortEndpoint() noexcept {
  if (transport_->is_stream_ordered()) {
    abort_thread_.Abort(endpoint_);
  } else {
    endpoint_.Abort();
  }
}

}  // namespace onebit
