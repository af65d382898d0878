// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Mesh: connects the ranks of a communicator with each other, by memory or by TCP, and lets nobody
// else in.
//
// The higher one of two ranks connects. Every connection proves the communicator's key first, both
// ways; until then nothing is parsed but the number of the rank, which the proof covers. Ranks of
// one kernel and one network name space try to share memory over an abstract socket. It counts only
// once both ends have seen a number that the other one wrote into it; whatever fails, the pair uses
// TCP.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include "comm/secret.h"
#include "comm/socket.h"
#include "plugins/common/frame_ring.h"
#include "plugins/transport_socket/rank_address.h"
#include "plugins/transport_socket/shared_segment.h"

namespace onebit::sockets {

inline constexpr char kTooFewDescriptors[] =
    "this process has too few file descriptors left: raise ulimit -n";

// The way to one rank.
struct Connection {
  // TCP, or the abstract socket that was used to share memory: it closes when the peer ends.
  Descriptor socket;
  SharedSegment segment;  // two rings, the lower rank's first; empty: TCP
  Descriptor doorbell;    // the peer's, for ranks that share memory
  // The keys are this connection's alone. Only TCP uses them.
  JobKey sending_key;
  JobKey receiving_key;

  bool is_made() const { return socket.is_open(); }
  bool is_shared() const { return segment.is_mapped(); }
};

// PairMemory is what two ranks share. The two rings follow: frames to the lower rank, and to the
// higher one.
struct PairMemory {
  // The numbers that prove that both ends see the same.
  uint64_t offered;  // by the rank that connects
  uint64_t answer;   // by the other one
  // Nonzero: this end sleeps, and the other rings its doorbell after a frame. The lower rank's
  // first.
  struct alignas(64) Flag {
    std::atomic<uint32_t> is_set;
  } sleeps[2];

  static size_t BytesOf(size_t ring_capacity) {
    return sizeof(PairMemory) + 2 * plugin::FrameRing::BytesOf(ring_capacity);
  }
  plugin::FrameRing::Memory* ring(size_t index, size_t ring_capacity) {
    return reinterpret_cast<plugin::FrameRing::Memory*>(
        reinterpret_cast<std::byte*>(this + 1) + index * plugin::FrameRing::BytesOf(ring_capacity));
  }
};

class Mesh {
 public:
  struct Options {
    int rank;
    int nranks;
    uint64_t comm_id;
    JobKey key;
    int doorbell;             // an eventfd; the peers get duplicates
    bool shares_memory;       // if false, all use TCP
    size_t eager_bytes;       // largest payload of a short frame
    SocketAddress interface;  // where to listen; port 0
    SocketAddress server;     // stands for the wildcard address in addresses of others
  };

  explicit Mesh(const Options& options) : options_(options) {}

  // Opens the listening sockets, and adds how to reach them to `mine`. On failure *problem says
  // why.
  onebitResult_t Listen(Address* mine, std::string* problem);
  // Connects to all other ranks; [rank] of the result is this rank's way to it. Nobody listens any
  // more when it returns. *problem says why it failed, or what stood in its way nevertheless.
  onebitResult_t Connect(const std::vector<Address>& ranks,
                         std::chrono::steady_clock::time_point deadline,
                         const std::function<bool()>& is_aborted,
                         std::vector<Connection>* connections, std::string* problem);
  // True if the two ranks share a kernel and a network name space, and try to share memory.
  bool IsCandidate(int rank) const;
  // Why this rank does not share memory with a candidate of a lower rank; empty: unknown.
  const std::string& memory_reason(int rank) const {
    return memory_reasons_[static_cast<size_t>(rank)];
  }
  // The capacity of the rings of ranks that share memory, after Connect.
  size_t ring_capacity() const { return ring_bytes_; }
  // The rings that lead to one rank take 8 MiB, or four eager payloads for each of its peers if
  // that is more. One ring fits the cache of a core with others.
  static size_t RingCapacity(size_t peers, size_t eager_bytes);

 private:
  using Clock = std::chrono::steady_clock;

  // A connection that is being made.
  struct Attempt {
    enum class Step {
      kConnecting,  // the system connects
      kServerHello,
      kGo,      // local: the other end may answer now
      kAnswer,  // local: the offer was sent
      kHello,   // from here on: the other end has connected
      kProof,
      kOffer,    // local
      kConfirm,  // local: the answer was sent
    };
    Step step;
    Descriptor socket;
    bool is_local;
    int rank;  // of the other end; -1: unknown
    Clock::time_point deadline;
    ClientHello hello{};
    Proof expected{};
    uint64_t number = 0;  // offered
    SharedSegment segment;
    Descriptor doorbell;
    SessionKeys keys{};
    std::array<std::byte, 128> received{};
    size_t filled = 0;
    size_t polled = 0;  // its index among the descriptors that are polled; 0: none

    bool is_stranger() const { return step == Step::kHello || step == Step::kProof; }
  };
  enum class Outcome { kGoesOn, kMade, kRefused };

  void Start(int rank, bool is_local);
  void Pause(int rank);
  std::string Missing() const;
  void Poll();
  onebitResult_t ConnectAll(Clock::time_point deadline, const std::function<bool()>& is_aborted,
                            std::string* problem);
  void Accept(const Descriptor& listener, bool is_local);
  bool DropStranger();
  bool MakeRoom();
  Outcome Advance(Attempt* attempt);
  Outcome AdvanceConnector(Attempt* attempt);
  Outcome AdvanceAcceptor(Attempt* attempt);
  Outcome OfferMemory(Attempt* attempt);
  Outcome AnswerOffer(Attempt* attempt);
  void Finish(Attempt* attempt);
  JobKey KeyOfPair(int connector, int acceptor) const;

  const Options options_;
  Descriptor tcp_;
  Descriptor local_;
  size_t ring_bytes_ = 0;  // capacity of a ring
  const std::vector<Address>* ranks_ = nullptr;
  std::vector<Connection>* connections_ = nullptr;
  std::vector<std::string> reasons_;  // by rank: why it is not connected yet
  std::vector<std::string> memory_reasons_;
  std::list<Attempt> attempts_;
  bool lacks_descriptors_ = false;
  bool was_short_ = false;  // of descriptors: an attempt, maybe a rank's, gave way to another
};

}  // namespace onebit::sockets
