// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A rank's end of the control channel between processes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "comm/control.h"
#include "comm/control_loop.h"
#include "comm/control_message.h"
#include "comm/sealed_channel.h"
#include "comm/unique_id.h"

namespace onebit {

// Thread-safe, except that one thread at a time gathers.
class ControlClient final : public Control, private LoopItem {
 public:
  struct Options {
    int rank = 0;
    int ranks = 1;
    std::chrono::milliseconds connect_timeout{60'000};
    std::chrono::milliseconds heartbeat{1000};
    std::chrono::milliseconds loss_timeout{15'000};
    std::string process;  // "host:pid" of this process
    std::string job;      // FindJobWord
    // The address may have belonged to the server of an earlier start, which failed.
    bool is_address_reused = false;
    std::string address_source;  // names the origin of the address in texts; may be empty
    // Former numbers of the ranks, which texts use until EndJoining.
    std::vector<int> known_as;
  };
  // Returns the server's address and key. Called before each attempt; waits at most until the
  // deadline, and may be called again after that.
  using Locate = std::function<Result<UniqueId>(Deadline)>;

  // Retries until admitted or out of time. With `is_final`, a server with another secret is an
  // error at once; without, it may be an old one that is about to be replaced. `stop` cancels the
  // attempt, and later gathers until SetStop replaces it.
  static Result<std::unique_ptr<ControlClient>> Join(const Options& options, const Locate& locate,
                                                     bool is_final, const StopCheck& stop = {});
  // Asks the server of another process, which may have gone, whether it waits for this rank or that
  // of another process. Fails with its answer if so, and leaves a join in which this rank is one
  // too many in failure.
  static Status CheckUnclaimed(const Options& options, const UniqueId& id);
  // Leaves the group.
  ~ControlClient() override;

  uint64_t comm_id() const { return comm_id_; }
  Deadline connect_deadline() const { return connect_deadline_; }
  const SocketAddress& server() const { return server_; }
  // This end of the connection. Ranks of other processes reach it; a rank in the server's own
  // process may be connected by an address that only this host can reach.
  const SocketAddress& local_address() const { return local_address_; }
  // A key of the communicator's ranks for connections of the transport.
  const JobKey& transport_key() const { return transport_key_; }

  // Names the rank that is lost with the server: the first whose process ("host:pid") is the
  // server's, if there is one.
  void SetServerRank(std::span<const std::string> processes);
  // Sets who learns of failures; null for nobody. No call of the former listener is running when
  // this returns.
  void SetListener(FailureListener* listener);

  void EndJoining() override;
  Failure Report(const Failure& failure) override;
  std::optional<Failure> first_failure() const override;
  std::vector<int> lost_ranks() const override;
  void RecordCalls() override;
  void SendCalls() override;
  void ReportWait(Waits waits) override;
  void WithdrawWait() override;
  Result<std::vector<Bytes>> Gather(std::span<const std::byte> mine, Deadline deadline,
                                    std::string_view what) override;

 private:
  ControlClient(const Options& options, Deadline deadline)
      : options_(options), connect_deadline_(deadline) {}

  Status Attempt(const UniqueId& id);
  Status Watch();

  // Called with the loop's mutex held.
  void OnEvent(int fd, uint32_t events) override;
  std::chrono::steady_clock::time_point OnTimer(std::chrono::steady_clock::time_point now) override;
  void OnStall(std::chrono::steady_clock::time_point now) override { last_heard_ = now; }
  void OnOutOfMemory() override;
  bool is_over() const override { return false; }
  void Retire() override {}
  Status OnMessage(HubMessage message);
  void Send(const RankMessage& message);
  // Sends as many call records as the socket takes.
  void DrainCalls();
  void CloseChannel(std::string_view why);
  void GiveUpServer(std::string_view why);
  Failure LossOfServer(std::string_view why) const;
  void SetFailure(Failure failure);
  std::string MissingText() const;

  const Options options_;
  const Deadline connect_deadline_;
  SocketAddress server_;
  SocketAddress local_address_;
  JobKey transport_key_{};
  uint64_t comm_id_ = 0;
  std::string server_name_;
  std::optional<int> server_rank_ = 0;

  // Guarded by the loop's mutex once it is watched.
  std::condition_variable changed_;
  std::unique_ptr<SealedChannel> channel_;  // null: the connection is closed
  FailureListener* listener_ = nullptr;
  bool may_end_ = false;
  uint64_t gather_number_ = 0;
  std::optional<std::vector<Bytes>> gathered_;
  std::optional<HubAlive> missing_;
  bool has_joined_ = false;
  std::optional<Failure> first_failure_;
  std::optional<Refused> refusal_;
  std::set<int> lost_;
  std::chrono::steady_clock::time_point last_heard_;
  std::chrono::steady_clock::time_point next_heartbeat_;
};

}  // namespace onebit
