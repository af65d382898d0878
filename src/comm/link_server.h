// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The accepting side of a port: admits clients that prove to know the key, and carries their
// messages. A stranger costs it little memory for a short time.
#pragma once

#include <chrono>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "comm/control_loop.h"
#include "comm/sealed_channel.h"
#include "comm/secret.h"

namespace onebit {

// Learns what happens to links. A link is an authenticated connection; link numbers are not reused.
class LinkOwner {
 public:
  // An error ends the link, as its end by the other side does.
  virtual Status OnLinkMessage(uint64_t link, const Bytes& message) = 0;
  virtual void OnLinkGone(uint64_t link, std::string_view why) = 0;
  // True once the client has said which rank it is.
  virtual bool IsLinkKnown(uint64_t link) const = 0;
  // How many clients are yet to come; so many strangers are probably these.
  virtual size_t AwaitedClients() const = 0;
  // Clients have waited for descriptors for some time.
  virtual void OnShortage() = 0;

 protected:
  ~LinkOwner() = default;
};

// Part of a LoopItem, which passes its events on. Every function needs the loop's mutex.
class LinkServer {
 public:
  struct Options {
    JobKey key;
    size_t most_message_bytes = 0;  // from a client
    // The time a stranger has to prove itself and say which rank it is.
    std::chrono::milliseconds handshake_timeout{5000};
    bool is_wrong_key_expected = false;  // no warning about it
  };
  LinkServer(LoopItem& item, LinkOwner& owner, const Options& options)
      : item_(item), owner_(owner), options_(options) {}

  // Accepts connections until Close.
  Status Open(Descriptor listener);
  bool is_open() const { return listener_.is_open(); }
  // Nobody can connect after this. Links stay.
  void Close();
  // Closes all links without a word; needs no memory.
  void DropAll();

  // True if nobody waits to be let in.
  bool IsQuiet() const { return strangers_.empty() && !HasWaiting(); }

  // False if the descriptor does not belong to this object.
  bool OnEvent(int fd, uint32_t events);
  // Returns when to be called next.
  std::chrono::steady_clock::time_point OnTimer(std::chrono::steady_clock::time_point now);

  void Send(uint64_t link, std::span<const std::byte> message);
  // Closes the link once everything sent has gone out. The owner does not learn of it.
  void CloseLink(uint64_t link);
  bool IsLossy(uint64_t link) const;

  // Strangers served at a time; one more displaces the oldest. The same limit applies to clients
  // that have proved themselves but not said which rank they are.
  static constexpr size_t kMaxStrangers = 256;

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  // A connection that has not proved that it knows the key.
  struct Stranger {
    Descriptor socket;
    TimePoint deadline;
    Bytes received;  // at most one hello or proof
    std::optional<ServerAnswer> answer;
  };

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
  // Closes authenticated connections that did not join in time. Returns when the next is due.
  TimePoint DropIdleNewcomers(TimePoint now);

  LoopItem& item_;
  LinkOwner& owner_;
  const Options options_;
  Descriptor listener_;
  std::optional<TimePoint> paused_until_;  // out of descriptors: not accepting
  std::optional<TimePoint> short_since_;   // of descriptors, while somebody waits
  std::list<Stranger> strangers_;          // oldest first
  std::unordered_map<int, std::list<Stranger>::iterator> stranger_of_fd_;
  std::unordered_map<uint64_t, std::unique_ptr<SealedChannel>> links_;
  std::unordered_map<int, uint64_t> link_of_fd_;
  // Links by age, with their deadlines for joining; some have joined, or are gone.
  std::deque<std::pair<uint64_t, TimePoint>> newcomers_;
  std::vector<std::unique_ptr<SealedChannel>>
      closed_;  // kept, because one may still be on the stack
  uint64_t next_link_ = 1;
  bool has_warned_ = false;  // about a client with a wrong secret
};

}  // namespace onebit
