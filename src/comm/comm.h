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
#include "comm/rendezvous.h"
#include "topology/placement.h"
#include "transport/transport.h"

namespace onebit {

// Frozen at creation. What changes messages is equal on all ranks; the time-out may differ.
struct CommOptions {
  uint64_t timeout_ms = 600'000;  // without progress, until a collective fails
  // Compressed tensors up to this size use one exchange; nullopt: as suits the number of ranks.
  std::optional<uint64_t> one_exchange_elements = 0;
  uint64_t segment_elements = 262'144;
  // Calls of a group up to this size travel together.
  uint64_t group_elements = 1'048'576;
  // Threads that compute beside the caller; nullopt: as many as cores are to spare.
  std::optional<uint64_t> compute_threads = 0;
  uint64_t regroup_timeout_ms = 60'000;  // for all ranks to come to a Split or Shrink
};

// The options that change messages: what ranks must agree on.
AgreedValues AgreedOptions(const CommOptions& options);

// kMismatch if ranks differ in one of them; the text names the variable, two ranks and their
// values.
Status CompareOptions(std::span<const CommOptions> options_by_rank);

// How a rank that is a process joins its group.
struct JoinOptions {
  ControlClient::Options control;
  ControlClient::Locate locate;   // where the server of the control channel is
  bool is_location_final = true;  // ControlClient::Join
  std::string transport;          // by name
  std::string interfaces;         // ONEBIT_SOCKET_IFNAME
  CommOptions comm;
  // Of exactly these ranks, for the time of the call; null: none.
  const NativeGroup* group = nullptr;
};

struct CpuSet {
  uint32_t threads = 0;
  ProcessorSet processors;  // empty: any
};

// Written by the thread in a call, read by anyone.
struct CommCounters {
  std::atomic<uint64_t> dense_calls{0};
  std::atomic<uint64_t> compressed_calls{0};
  std::atomic<uint64_t> nonfinite_calls{0};
  std::atomic<uint64_t> failed_calls{0};
  std::atomic<uint64_t> logical_bytes{0};
  std::atomic<uint64_t> bytes_sent{0};
  std::atomic<uint64_t> messages_sent{0};
  std::atomic<uint64_t> codec_ns{0};
  std::atomic<uint64_t> call_ns{0};
  std::atomic<uint64_t> compute_threads{0};
};
// relaxed: numbers that nothing else depends on.
inline void Add(std::atomic<uint64_t>& counter, uint64_t amount) {
  counter.fetch_add(amount, std::memory_order_relaxed);
}

// One thread at a time between Enter and Exit; Abort and the const members from any thread.
class Comm final : private PeerErrorSink, private FailureListener {
 public:
  // A group of n ranks in this process over `transport`.
  static Result<std::vector<std::unique_ptr<Comm>>> CreateLocalGroup(const Transport& transport,
                                                                     int ranks,
                                                                     const CommOptions& options);
  // The same with one set of options per rank, which CompareOptions must find equal.
  static Result<std::vector<std::unique_ptr<Comm>>> CreateLocalGroup(
      const Transport& transport, std::span<const CommOptions> options_by_rank);
  // The same without the comparison: for tests of what the checks in messages see when ranks differ
  // all the same.
  static Result<std::vector<std::unique_ptr<Comm>>> CreateLocalGroupUnchecked(
      const Transport& transport, std::span<const CommOptions> options_by_rank);
  // Joins a group of processes; returns when all ranks have joined and are connected, or when
  // `stop` calls it off.
  static Result<std::unique_ptr<Comm>> Join(const JoinOptions& options, const StopCheck& stop = {});

  // New communicators of ranks of this one. Of `options`, null meaning those of this communicator,
  // the times and the options of collectives count. For a thread that has acquired it.
  //
  // Split: collective on this communicator, which must be in order. Ranks of equal color, 0 or
  // more, become one communicator, by key and then by rank; null for a color of kNoColor. Shrink:
  // of the ranks that are not excluded, in their order, which are the only ones to call it; whether
  // this communicator has failed does not matter.
  static constexpr int kNoColor = -1;
  Result<std::unique_ptr<Comm>> Split(int color, int key, const JoinOptions* options);
  Result<std::unique_ptr<Comm>> Shrink(std::span<const int> excluded, const JoinOptions* options);
  // The rank whose loss put the communicator out of use, if that is why.
  std::optional<int> FindLostRank();

  // What every rank has to say, by rank: Control::Gather. A failure puts the communicator out of
  // use.
  Result<std::vector<Bytes>> Gather(std::span<const std::byte> mine, Deadline deadline,
                                    std::string_view what);
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  uint32_t id() const { return id_; }
  const CommOptions& options() const { return options_; }
  std::string_view transport_name() const { return transport_->properties().name; }
  // Whether dense allreduces of fp32 are the transport's own.
  bool has_native_dense() const { return transport_->properties().nativeDense != 0; }
  bool is_stream_ordered() const { return transport_->is_stream_ordered(); }
  // Threads that may compute beside the calling one, and where.
  CpuSet FindCpuSet() const;
  Endpoint& endpoint() { return endpoint_; }
  CommCounters& counters() { return counters_; }
  const CommCounters& counters() const { return counters_; }

  // Bracket whatever only one thread may do at a time. Acquire fails when another thread is inside.
  Status Acquire();
  void Exit();
  // Acquire for a collective: fails, too, when the communicator has failed, and when the call could
  // never end because no thread is left to make the other ranks' calls.
  // `ranks_here`: the ranks of this communicator whose calls the thread is making at once.
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
  // Fails when no collective may begin, because the communicator has failed or was finalized. For
  // any thread.
  Status CheckUsable();
  // No collective may begin any more.
  void Finalize() { is_finalized_.store(true, std::memory_order_release); }
  bool is_in_call() const { return is_in_call_.load(std::memory_order_acquire); }

  // Number of the call that runs now; advances with every collective that passed its checks.
  uint64_t NextSequence() { return sequence_++; }
  // Default tensor id of the next compressor, and its advance once one was created.
  uint32_t next_tensor_id() const { return next_tensor_id_; }
  void CountTensor() { ++next_tensor_id_; }
  // No later compressor gets this id by default.
  void SkipTensor(uint32_t id) { next_tensor_id_ = std::max(next_tensor_id_, id + 1); }

  // True as soon as the communicator is to stop, whoever caused it. Cheap.
  bool is_stopped() const { return is_stopped_.load(std::memory_order_acquire); }
  // Puts the communicator out of use and tells the group. If something else stopped it before, that
  // is the error that remains and is returned: the root cause, not what followed from it.
  // `situation` tells what this rank was doing; `cause` tells it already.
  Status Fail(Status cause, const std::string& situation = {});
  // For a rank that finds no memory for Fail: if there is none at all, the transport tells the
  // peers that this rank has ended.
  Status FailWithoutMemory() noexcept;
  // The error that put it out of use; ok if none. FindFailure also looks for the cause of a stop
  // from outside that no call has noticed yet.
  Status failure() const;
  Status FindFailure() { return is_stopped() ? Fail(OkStatus()) : OkStatus(); }

  // Stops the communicator and returns when no call is inside any more.
  void Abort();

 private:
  // Of the processes: what they can meet by when this communicator has failed.
  struct Fallback {
    JoinOptions options;  // how this rank joined
    SpareRendezvous rendezvous;
    std::vector<UniqueId> addresses;  // of all ranks, as this one reaches them
  };

  Comm(int rank, int ranks, uint32_t id, const CommOptions& options, const Transport& transport)
      : rank_(rank), ranks_(ranks), id_(id), options_(options), transport_(&transport) {}

  // Fails if the calls of `ranks` ranks of this process can never be made.
  Status CheckOtherThreads(int ranks) const;
  Status ConnectTo(ControlClient* control);
  // A communicator of these ranks of this one, in the order of their new ranks. `purpose` is equal
  // on all of them and keeps others out.
  Result<std::unique_ptr<Comm>> JoinMembers(std::span<const int> members, std::string_view purpose,
                                            const JoinOptions* options) const;
  Result<std::unique_ptr<Comm>> JoinProcesses(std::span<const int> members,
                                              std::string_view purpose, JoinOptions options) const;
  Result<std::unique_ptr<Comm>> JoinThreads(std::span<const int> members,
                                            const CommOptions& options) const;
  Status ConnectLocal();
  StopCheck StopOfThisCall() const;
  void OnPeerError(int peer, Code code, const char* text) override;
  Failure PeerFailure(int peer, Code code, const char* text) const noexcept;
  void OnRemoteFailure() override;
  Status Decide(Status cause, const std::string& situation);
  // Of a failure that this rank is the first to see.
  Failure OwnCause(Status cause, const std::string& situation);
  // A failure of the group as this rank tells it.
  Status Told(const Failure& failure, const std::string& situation) const;
  Status Record(Status cause);

  const int rank_;
  const int ranks_;
  const uint32_t id_;
  const CommOptions options_;
  const Transport* const transport_;
  bool are_ranks_threads_ = false;  // of this process, all of them
  size_t sharing_ranks_ = 1;        // ranks on the processors of this one, itself included
  uint64_t sequence_ = 0;
  uint32_t next_tensor_id_ = 0;
  std::atomic<bool> is_in_call_{false};
  std::atomic<bool> is_stopped_{false};
  std::atomic<bool> is_finalized_{false};
  std::atomic<uint64_t> aborts_{0};
  mutable std::mutex failure_mutex_;  // guards failure_ and peer_error_
  Status failure_;
  std::optional<Failure> peer_error_;
  CommCounters counters_;
  Endpoint endpoint_;
  AbortThread abort_thread_;                 // uses endpoint_
  std::optional<Fallback> fallback_;         // of processes
  std::shared_ptr<LocalGroup> local_group_;  // of threads
  std::unique_ptr<Control> control_;         // last: it calls back, so it goes first
};

// Leaves an acquired or entered communicator at the end of the scope, whatever happens in it.
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
