// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The server of a communicator's control channel: opens its port, admits clients that prove to know
// the key, and serves them by the rules of ControlHub. A stranger costs it little memory for a
// short time.
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

// Lives in the control loop until all ranks have left. Owns itself after Start.
class ControlServer final : private LoopItem, private ControlLinks {
 public:
  struct Options {
    SocketAddress address;  // port 0: any
    JobKey key;
    std::string process;              // "host:pid" of this process
    std::optional<std::string> job;   // ControlHub
    bool has_visitors = false;        // clients that leave, or have another key, are expected
    std::function<void()> on_closed;  // called once, by the loop, when no rank can join any more
    // The time a stranger has to prove itself and say which rank it is.
    std::chrono::milliseconds handshake_timeout{5000};
    // The time to wait for the first rank; 0: as long as the process lives.
    std::chrono::milliseconds first_rank_timeout{0};
    // The time after a failed start in which late ranks still get the reason.
    std::chrono::milliseconds failure_linger{60'000};
  };
  // Returns the address it listens at.
  static Result<SocketAddress> Start(Options options);
  // The same with a socket that is listening already; ignores options.address.
  static Status StartAt(Descriptor listener, Options options);

  // Ends the servers of this process whose start failed and closes their ports at once, because the
  // process starts again.
  static void RetireFailed();
  // After a start that failed: ranks that had to wait for descriptors learn why, which this process
  // would keep from them if it ended at once.
  static void AnswerWaiting();

  // Strangers served at a time; one more displaces the oldest. The same limit applies to clients
  // that have proved themselves but not said which rank they are.
  static constexpr size_t kMaxStrangers = 256;

 private:
  // A connection that has not proved that it knows the key.
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
  void Send(uint64_t link, const HubMessage& message) override;
  void Close(uint64_t link) override;
  bool IsLossy(uint64_t link) const override;

  void Accept();
  void Pause(bool is_at_limit);
  bool HasWaiting() const;
  void Welcome(Descriptor socket);
  void OnStranger(std::list<Stranger>::iterator stranger);
  // Reads what has arrived of a hello or proof. True once it is complete.
  Result<bool> ReadExactly(Stranger& stranger, size_t size);
  Status Advance(Stranger& stranger, bool* is_proved);
  void Promote(std::list<Stranger>::iterator stranger);
  void DropStranger(std::list<Stranger>::iterator stranger);
  void OnLink(uint64_t link, uint32_t events);
  void DropLink(uint64_t link);
  // Closes authenticated connections that did not join in time. Returns when the next is due.
  Clock::time_point DropIdleNewcomers(Clock::time_point now);
  void CloseListener();
  // The time at which the server ends if no rank is connected, though not all have joined.
  Clock::time_point End() const;

  const Options options_;
  const Origin origin_;
  Descriptor listener_;
  std::optional<Clock::time_point> paused_until_;  // out of descriptors: not accepting
  std::optional<Clock::time_point> short_since_;   // of descriptors, while somebody waits
  bool owes_answers_ = false;                      // to those who waited in vain
  std::list<Stranger> strangers_;                  // oldest first
  std::unordered_map<int, std::list<Stranger>::iterator> stranger_of_fd_;
  std::unordered_map<uint64_t, std::unique_ptr<SealedChannel>> links_;
  std::unordered_map<int, uint64_t> link_of_fd_;
  // Links by age, with their deadlines for joining; some have joined, or are gone.
  std::deque<std::pair<uint64_t, Clock::time_point>> newcomers_;
  std::vector<std::unique_ptr<SealedChannel>>
      closed_;  // kept, because one may still be on the stack
  uint64_t next_link_ = 1;
  const Clock::time_point started_ = Clock::now();
  std::optional<Clock::time_point> failed_at_;
  bool is_retired_ = false;
  bool has_warned_ = false;  // about a client with a wrong secret
  ControlHub hub_;
};

}  // namespace onebit
