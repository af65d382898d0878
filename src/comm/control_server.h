// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The server of a communicator's control channel: opens its port, lets in who proves to know the
// key, and serves them by the rules of the star. Strangers cost it a little memory for a short
// time.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "comm/control_hub.h"
#include "comm/control_loop.h"
#include "comm/sealed_channel.h"
#include "comm/secret.h"

namespace onebit {

// Lives in the control loop until all ranks have left. Owned by itself after Start.
class ControlServer final : private LoopItem, private ControlLinks {
 public:
  struct Options {
    SocketAddress address;  // port 0: any
    JobKey key;
    std::string process;              // "host:pid" of this process
    bool has_visitors = false;        // who goes away again, or has another key, is no surprise
    std::function<void()> on_closed;  // called once, by the loop, when no rank can join any more
    // For a stranger to prove itself and say which rank it is.
    std::chrono::milliseconds handshake_timeout{5000};
    // How long it waits for a rank to come; 0: for as long as the process lives.
    std::chrono::milliseconds patience{0};
    // After a start that failed: how long ranks that are late find out what went wrong.
    std::chrono::milliseconds patience_after_failure{60'000};
  };
  // Returns the address it listens at.
  static Result<SocketAddress> Start(Options options);
  // The same at a socket that listens already; options.address is not looked at.
  static Status StartAt(Descriptor listener, Options options);

  // Ends the servers of this process whose start failed, and closes their ports at once: the
  // process starts again.
  static void RetireFailed();

  // Strangers that are dealt with at a time; beyond that the one that is longest there must go. Who
  // has proved itself and has not said which rank it is counts for as many again.
  static constexpr size_t kMaxStrangers = 256;

 private:
  // A connection that has not proved anything yet.
  struct Stranger {
    Descriptor socket;
    Clock::time_point deadline;
    Bytes received;  // at most one hello or proof
    std::optional<ServerAnswer> answer;
  };

  explicit ControlServer(Options options);
  virtual ~ControlServer() = default;
  static std::vector<ControlServer*>& Live();  // guarded by the loop's mutex

  void OnEvent(int fd, uint32_t events) override;
  Clock::time_point OnTimer(Clock::time_point now) override;
  void OnStall(Clock::time_point now) override { hub_.OnStall(now); }
  void OnOutOfMemory() override;
  bool is_over() const override;
  void Retire() override;
  void Send(uint64_t link, const StarMessage& message) override;
  void Close(uint64_t link) override;

  void Accept();
  void Welcome(Descriptor socket);
  void OnStranger(std::list<Stranger>::iterator stranger);
  // Takes what has come of a hello or proof; true when all of it is there.
  Result<bool> ReadExactly(Stranger& stranger, size_t size);
  Status Advance(Stranger& stranger, bool* is_proved);
  void Promote(std::list<Stranger>::iterator stranger);
  void DropStranger(std::list<Stranger>::iterator stranger);
  void OnLink(uint64_t link, uint32_t events);
  void DropLink(uint64_t link);
  // Closes connections that have proved themselves and do not join. Returns when the next is due.
  Clock::time_point DropIdleNewcomers(Clock::time_point now);
  void CloseListener();
  // When it ends although not all ranks have come, if none of them is there.
  Clock::time_point End() const;

  const Options options_;
  Descriptor listener_;
  std::optional<Clock::time_point> paused_until_;  // no descriptors were left: the listener rests
  std::list<Stranger> strangers_;                  // oldest first
  std::unordered_map<int, std::list<Stranger>::iterator> stranger_of_fd_;
  std::unordered_map<uint64_t, std::unique_ptr<SealedChannel>> links_;
  std::unordered_map<int, uint64_t> link_of_fd_;
  // Links by age, with the time until which they must have joined; some have, or are gone.
  std::deque<std::pair<uint64_t, Clock::time_point>> newcomers_;
  std::vector<std::unique_ptr<SealedChannel>> closed_;  // one of them may be in a call still
  uint64_t next_link_ = 1;
  const Clock::time_point started_ = Clock::now();
  std::optional<Clock::time_point> failed_at_;
  bool is_retired_ = false;
  bool has_warned_ = false;  // of somebody with a wrong secret
  ControlHub hub_;
};

}  // namespace onebit
