// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The server of a communicator's control channel: opens its port, admits clients that prove to know
// the key, and serves them by the rules of ControlHub.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/control_hub.h"
#include "comm/link_server.h"

namespace onebit {

// Lives in the control loop until all ranks have left. Owns itself after Start.
class ControlServer final : private LoopItem, private ControlLinks, private LinkOwner {
 public:
  struct Options {
    SocketAddress address;  // port 0: any
    JobKey key;
    std::string process;              // "host:pid" of this process
    std::optional<std::string> job;   // ControlHub
    std::function<void()> on_closed;  // called once, by the loop, when no rank can join any more
    std::chrono::milliseconds handshake_timeout{5000};  // LinkServer
    // The time to wait for the first rank; 0: as long as the process lives.
    std::chrono::milliseconds first_rank_timeout{0};
    // The time after a failed start in which late ranks still get the reason.
    std::chrono::milliseconds failure_linger{60'000};
  };
  // Returns the address it listens at.
  static Result<SocketAddress> Start(Options options);

  // Ends the servers of this process whose start failed and closes their ports at once, because the
  // process starts again.
  static void RetireFailed();
  // After a start that failed: ranks that had to wait for descriptors learn why, which this process
  // would keep from them if it ended at once.
  static void AnswerWaiting();

 private:
  explicit ControlServer(Options options);
  virtual ~ControlServer() = default;
  static std::vector<ControlServer*>& Live();  // guarded by the loop's mutex

  void OnEvent(int fd, uint32_t events) override;
  Clock::time_point OnTimer(Clock::time_point now) override;
  void OnStall(Clock::time_point now) override { hub_.OnStall(now); }
  void OnOutOfMemory() override;
  bool is_over() const override;
  void Retire() override;
  void Send(uint64_t link, const HubMessage& message) override;
  void Close(uint64_t link) override;
  bool IsLossy(uint64_t link) const override { return door_.IsLossy(link); }
  Status OnLinkMessage(uint64_t link, const Bytes& message) override;
  void OnLinkGone(uint64_t link, std::string_view why) override;
  bool IsLinkKnown(uint64_t link) const override { return hub_.has_joined(link); }
  size_t AwaitedClients() const override { return hub_.awaited(); }
  void OnShortage() override;

  void CloseListener();
  // The time at which the server ends if no rank is connected, though not all have joined.
  Clock::time_point End() const;

  const Options options_;
  const Origin origin_;
  const Clock::time_point started_ = Clock::now();
  std::optional<Clock::time_point> failed_at_;
  bool is_retired_ = false;
  bool owes_answers_ = false;  // to those who waited in vain for descriptors
  ControlHub hub_;
  LinkServer door_;
};

}  // namespace onebit
