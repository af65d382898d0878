// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A communicator: one rank of a group, its endpoint, its failure state and its counters. It knows
// no collective.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "comm/abort_thread.h"
#include "comm/agreement.h"
#include "comm/control.h"
#include "comm/control_client.h"
#include "comm/local_control.h"
#include "comm/meeting_point.h"
#include "comm/rendezvous.h"
#include "topology/host_map.h"
#include "topology/placement.h"
#include "transport/transport.h"

namespace onebit {

// Fixed at creation. Options that change messages are equal on all ranks; time-outs may differ.
struct CommOptions {
  uint64_t timeout_ms = 600'000;  // without progress, until a collective fails
  // Compressed tensors up to this size use one exchange; nullopt: depends on the number of ranks.
  std::optional<uint64_t> one_exchange_elements = 0;
  // Calls from this size on take two levels; nullopt: select.cc says.
  std::optional<uint64_t> two_level_bytes;
  uint64_t segment_elements = 262'144;
  // Calls of a group up to this size share messages; nullopt: depends on the transport.
  std::optional<uint64_t> group_elements = 262'144;
  // Threads that compute in addition to the caller; nullopt: as many as there are spare cores.
  std::optional<uint64_t> compute_threads = 0;
  uint64_t regroup_timeout_ms = 60'000;  // for all ranks to enter a Split or Shrink
  uint64_t shrink_grace_ms = 5'000;      // for ranks that do not answer in a Shrink without a list
  bool is_quorum_needed = false;         // in a Shrink without a list; equal on all ranks
  std::string host;         // a word that the ranks of a host have in common; empty: none
  uint64_t host_ranks = 0;  // without a word: successive ranks that are one host; 0: not set
};

// The options that change messages, or who may go on, on which ranks must agree.
AgreedValues AgreedOptions(const CommOptions& options);

// Fails with kMismatch if ranks differ in one of them; the text names the variable, two ranks and
// their values.
Status CompareOptions(std::span<const CommOptions> options_by_rank);

// Options with which a process joins its group as a rank.
struct JoinOptions {
  ControlClient::Options control;
  ControlClient::Locate locate;   // finds the control server
  bool is_location_final = true;  // ControlClient::Join
  std::string transport;          // by name
  std::string interfaces;         // ONEBIT_SOCKET_IFNAME
  CommOptions comm;
  // A native group of exactly these ranks, valid during the call; may be null.
  const NativeGroup* group = nullptr;
};

struct CpuSet {
  uint32_t threads = 0;
  ProcessorSet processors;  // empty: any
};

// Written by the thread in a call, read by any thread.
struct CommCounters {
  std::atomic<uint64_t> dense_calls{0};
  std::atomic<uint64_t> compressed_calls{0};
  std::atomic<uint64_t> nonfinite_calls{0};
  std::atomic<uint64_t> failed_calls{0};
  std::atomic<uint64_t> native_calls{0};
  std::atomic<uint64_t> two_level_calls{0};
  std::atomic<uint64_t> logical_bytes{0};
  std::atomic<uint64_t> bytes_sent{0};
  std::atomic<uint64_t> messages_sent{0};
  std::atomic<uint64_t> network_bytes{0};
  std::atomic<uint64_t> codec_ns{0};
  std::atomic<uint64_t> call_ns{0};
  std::atomic<uint64_t> compute_threads{0};
};
// relaxed: nothing else depends on these numbers.
inline void Add(std::atomic<uint64_t>& counter, uint64_t amount) {
  counter.fetch_add(amount, std::memory_order_relaxed);
}

// One thread at a time between Enter and Exit. Abort and const members are thread-safe.
class Comm final : private channel::PeerErrorSink, private FailureListener {
 public:
  // A group of n ranks in this process over `transport`.
  static Result<std::vector<std::unique_ptr<Comm>>> CreateLocalGroup(const Transport& transport,
                                                                     int ranks,
                                                                     const CommOptions& options);
  // The same with one set of options per rank, which CompareOptions must find equal.
  static Result<std::vector<std::unique_ptr<Comm>>> CreateLocalGroup(
      const Transport& transport, std::span<const CommOptions> options_by_rank);
  // The same without the comparison, for tests of the checks in messages.
  static Result<std::vector<std::unique_ptr<Comm>>> CreateLocalGroupUnchecked(
      const Transport& transport, std::span<const CommOptions> options_by_rank);
  // Joins a group of processes; returns when all ranks have joined and are connected, or when
  // `stop` cancels it.
  static Result<std::unique_ptr<Comm>> Join(const JoinOptions& options, const StopCheck& stop = {});

  // The ranks that are known to be lost, in ascending order. Thread-safe.
  std::vector<int> FindLostRanks();

  // See Control::Gather. A failure puts the communicator out of use.
  Result<std::vector<Bytes>> Gather(std::span<const std::byte> mine, Deadline deadline,
                                    std::string_view what);
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  const HostMap& hosts() const { return hosts_; }
  // A process that is silent for so long counts as lost; 0: ranks are threads.
  std::chrono::milliseconds loss_timeout() const {
    return fallback_ ? fallback_->options.control.loss_timeout : std::chrono::milliseconds(0);
  }
  uint32_t id() const { return id_; }
  const CommOptions& options() const { return options_; }
  std::string_view transport_name() const { return transport_->properties().name; }
  // True if callers' dense calls are the transport's own: allreduces of fp32 or, over a
  // stream-ordered transport, the collectives of onebitTransportCollective_t.
  bool has_native_dense() const { return transport_->properties().nativeDense != 0; }
  bool is_stream_ordered() const { return transport_->is_stream_ordered(); }
  // Counts a message to `peer`, whose bytes pass the links of this rank's host unless it is there.
  void CountNetworkBytes(uint32_t peer, size_t bytes) {
    if (hosts_.hosts() == 1) return;
    const uint32_t own_host = hosts_.HostOf(static_cast<uint32_t>(rank_));
    if (hosts_.HostOf(peer) == own_host) return;
    Add(counters_.network_bytes, bytes);
  }
  // Short messages let ranks compute while others travel. Over a stream-ordered transport they cost
  // launches of kernels instead.
  uint64_t group_elements() const {
    return options_.group_elements.value_or(is_stream_ordered() ? 1'048'576 : 262'144);
  }
  // Number and processors of the threads that may compute in addition to the calling one.
  CpuSet FindCpuSet() const;
  Endpoint& endpoint() { return endpoint_; }
  CommCounters& counters() { return counters_; }
  const CommCounters& counters() const { return counters_; }

  // Bracket operations that are limited to one thread at a time. Acquire fails if another thread is
  // inside.
  Status Acquire();
  void Exit();
  // Acquires for a collective. Also fails if the communicator has failed, or if the call could
  // never end because no thread is left to make the other ranks' calls. `ranks_here` is the number
  // of ranks whose calls this thread makes at once.
  Status Enter(int ranks_here = 1);
  // For transports that cannot compare calls in their messages: see Control. A single rank has
  // nobody to compare its calls with.
  void RecordCalls() {
    if (ranks_ > 1) control_->RecordCalls();
  }
  [[nodiscard]] bool PostCall(const CallDescriptor& call) {
    return ranks_ == 1 || control_->PostCall(call);
  }
  void SendCalls() {
    if (ranks_ > 1) control_->SendCalls();
  }
  // Tells the group that this rank waits in the call with this number.
  void ReportWait(uint64_t sequence, std::string call) {
    if (ranks_ == 1) return;
    control_->ReportWait({.is_gather = false, .calls = sequence, .what = std::move(call)});
  }
  // Fails if the communicator has failed or was finalized. Thread-safe.
  Status CheckUsable();
  // Prevents further collectives.
  void Finalize() { is_finalized_.store(true, std::memory_order_release); }
  // Ranks of other processes belong to the communicator, too.
  bool has_other_processes() const { return ranks_ > 1 && !are_ranks_threads_; }
  bool is_in_call() const { return is_in_call_.load(std::memory_order_acquire); }

  // Number of the call that runs now; advances with every collective that passed its checks.
  uint64_t NextSequence() { return sequence_++; }
  // Number of the next message of a send to `peer`, or of a receive from it.
  uint64_t NextPairNumber(uint32_t peer, bool is_receive) {
    std::vector<uint64_t>& numbers = is_receive ? received_ : sent_;
    numbers.resize(static_cast<size_t>(ranks()));
    return numbers[peer]++;
  }
  // Default tensor id of the next compressor, and its advance once one was created.
  uint32_t next_tensor_id() const { return next_tensor_id_; }
  void CountTensor() { ++next_tensor_id_; }
  // No later compressor gets this id by default.
  void ReserveTensorId(uint32_t id) { next_tensor_id_ = std::max(next_tensor_id_, id + 1); }

  // True once the communicator has to stop, whatever the cause. One load.
  bool is_stopped() const { return is_stopped_.load(std::memory_order_acquire); }
  // Puts the communicator out of use and reports to the group. Keeps and returns an earlier cause
  // if there is one: the root cause, not its consequences. `situation` describes what this rank was
  // doing, for causes that do not.
  Status Fail(Status cause, const std::string& situation = {});
  // For a rank without memory for Fail. In the worst case peers learn from the transport that this
  // rank has ended.
  Status FailWithoutMemory() noexcept;
  // Aborts the endpoint without waiting for it if that may take long. Thread-safe.
  void AbortEndpoint() noexcept;
  // The error that put the communicator out of use; ok if none. FindFailure also finds the cause of
  // an external stop that no call has noticed yet.
  Status failure() const;
  // Names all lost ranks if there are several.
  Status FindFailure();

  // Stops the communicator and returns once no call is inside.
  void Abort();

 private:
  friend class Regroup;

  // The means by which processes meet again after this communicator has failed.
  struct Fallback {
    JoinOptions options;  // how this rank joined
    std::shared_ptr<MeetingPoint> point;
  };

  Comm(int rank, int ranks, uint32_t id, const CommOptions& options, const Transport& transport)
      : rank_(rank), ranks_(ranks), id_(id), options_(options), transport_(&transport) {}

  // Fails if the calls of `ranks` ranks of this process can never be made.
  Status CheckOtherThreads(int ranks) const;
  Status ConnectTo(ControlClient* control);
  void OnPeerError(int peer, Code code, const char* text) override;
  Failure PeerFailure(int peer, Code code, const char* text) const noexcept;
  void OnRemoteFailure() override;
  Status Decide(Status cause, const std::string& situation);
  // Describes a failure that this rank is the first to see.
  Failure OwnCause(Status cause, const std::string& situation);
  // Describes a failure of the group for this rank's user.
  Status StatusOf(const Failure& failure, const std::string& situation) const;
  Status Record(Status cause);

  const int rank_;
  const int ranks_;
  const uint32_t id_;
  const CommOptions options_;
  const Transport* const transport_;
  HostMap hosts_;
  bool are_ranks_threads_ = false;  // all ranks are threads of this process
  size_t sharing_ranks_ = 1;        // ranks on this one's processors, itself included
  uint64_t sequence_ = 0;
  std::vector<uint64_t> sent_;  // sends and receives between pairs of ranks, by peer
  std::vector<uint64_t> received_;
  uint32_t next_tensor_id_ = 0;
  std::atomic<bool> is_in_call_{false};
  std::atomic<bool> is_stopped_{false};
  std::atomic<bool> is_finalized_{false};
  std::atomic<uint64_t> aborts_{0};
  mutable std::mutex failure_mutex_;  // guards the next three
  Status failure_;
  std::optional<Failure> peer_error_;
  std::optional<std::vector<int>> left_out_;  // ranks without which Shrink went on
  CommCounters counters_;
  Endpoint endpoint_;
  AbortThread abort_thread_;          // uses endpoint_
  std::optional<Fallback> fallback_;  // for processes
  // Of former communicators that lost ranks: a rank that comes late learns there who went on.
  std::vector<std::shared_ptr<MeetingPoint>> former_points_;
  std::shared_ptr<LocalGroup> local_group_;  // for threads
  std::unique_ptr<Control> control_;         // last: it calls back, so it is destroyed first
};

// Leaves an acquired or entered communicator at the end of the scope.
class CommUse {
 public:
  explicit CommUse(Comm& comm) : comm_(comm) {}
  ~CommUse() { comm_.Exit(); }
  CommUse(const CommUse&) = delete;
  CommUse& operator=(const CommUse&) = delete;

 private:
  Comm& comm_;
};

}  // namespace onebit
