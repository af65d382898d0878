// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/transport_socket/socket_frame_transport.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

namespace onebit::sockets {
namespace {

using plugin::FrameRing;
using plugin::Sent;

// Frames delivered from one ring before the others are served.
constexpr int kFramesPerTurn = 16;
// Ranks that share memory only look at their sockets, which tell of a peer's end, once in a while.
constexpr uint32_t kLooksPerSocketLook = 64;
// A wait begins by yielding: the peer often needs no more than the processor. A sleep costs ten
// times as much.
constexpr uint64_t kYieldNs = 50'000;
constexpr uint64_t kNsPerMs = 1'000'000;
constexpr uint64_t kDoorbell = UINT64_MAX;
constexpr uint64_t kAbort = UINT64_MAX - 1;

const char* const kEnded = "its process has ended";
const char* const kBroken = "it violates the protocol";

bool Watch(const Descriptor& epoll, int fd, uint32_t events, uint64_t mark) {
  epoll_event event{.events = events, .data = {.u64 = mark}};
  return epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Write(int eventfd) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(eventfd, &one, sizeof one);
}

}  // namespace

SocketFrameTransport::SocketFrameTransport(Context* context, const onebitTransportCommInfo& info)
    : FrameTransport(info), context_(context) {
  context_->AddEndpoint();
}

onebitResult_t SocketFrameTransport::Create(Context* context, const onebitTransportCommInfo& info,
                                            std::unique_ptr<SocketFrameTransport>* frames) {
  std::unique_ptr<SocketFrameTransport> created(new SocketFrameTransport(context, info));
  const onebitResult_t result = created->Start(info);
  if (result == onebitSuccess) *frames = std::move(created);
  return result;
}

onebitResult_t SocketFrameTransport::Start(const onebitTransportCommInfo& info) {
  const auto new_eventfd = [] { return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); };
  doorbell_ = Descriptor::From(new_eventfd);
  abort_ = Descriptor::From(new_eventfd);
  epoll_ = Descriptor::From([] { return epoll_create1(EPOLL_CLOEXEC); });
  if (!doorbell_.is_open() || !abort_.is_open() || !epoll_.is_open() ||
      !Watch(epoll_, doorbell_.get(), EPOLLIN, kDoorbell) ||
      !Watch(epoll_, abort_.get(), EPOLLIN, kAbort)) {
    context_->Warn("rank %d: %s", rank_,
                   errno == EMFILE || errno == ENFILE ? kTooFewDescriptors : std::strerror(errno));
    return onebitSystemError;
  }
  JobKey key{};
  if (info.key != nullptr) std::memcpy(key.bytes.data(), info.key, key.bytes.size());
  SocketAddress interface;
  SocketAddress server;
  onebitResult_t result = Context::ReadSocketAddress(info.address, info.addressBytes, &interface);
  if (result == onebitSuccess) {
    result = Context::ReadSocketAddress(info.server, info.serverBytes, &server);
  }
  if (result != onebitSuccess) return result;
  mesh_ =
      std::make_unique<Mesh>(Mesh::Options{.rank = rank_,
                                           .nranks = nranks_,
                                           .comm_id = comm_id_,
                                           .key = key,
                                           .doorbell = doorbell_.get(),
                                           .shares_memory = context_->options().shares_memory != 0,
                                           .eager_bytes = context_->options().eager_bytes,
                                           .interface = interface,
                                           .server = server});
  const Options& options = context_->options();
  address_ = {.head = HeadWith(options, context_->machine()),
              .network = IdentityOfThisNetwork(),
              .seals = static_cast<uint32_t>(options.seals),
              .ciphers = CiphersHere()};
  std::string problem;
  const onebitResult_t listening = mesh_->Listen(&address_, &problem);
  if (!problem.empty()) context_->Warn("rank %d: %s", rank_, problem.c_str());
  return listening;
}

onebitResult_t SocketFrameTransport::GetAddress(void* address, size_t* bytes) {
  WriteAddress(address_, address);
  *bytes = sizeof address_;
  return onebitSuccess;
}

onebitResult_t SocketFrameTransport::ReadAddresses(const void* const* addresses,
                                                   const size_t* address_bytes) {
  addresses_.assign(static_cast<size_t>(nranks_), {});
  for (int rank = 0; rank < nranks_; ++rank) {
    Address& address = addresses_[static_cast<size_t>(rank)];
    const char* const problem = ReadAddress(addresses[rank], address_bytes[rank], &address);
    const onebitResult_t result = plugin::CheckAddress(
        *context_, address_.head,
        {.rank = rank, .bytes = address_bytes[rank], .problem = problem, .head = address.head});
    if (result != onebitSuccess) return result;
    if (address.seals != address_.seals) {
      context_->Warn("rank %d has ONEBIT_SOCKET_SEAL=%u, rank %d on %s has %u: they must be equal",
                     rank_, address_.seals, rank, address.head.host_name, address.seals);
      return onebitInvalidUsage;
    }
  }
  return onebitSuccess;
}

onebitResult_t SocketFrameTransport::Connect(const void* const* addresses,
                                             const size_t* address_bytes, uint64_t timeout_ms) {
  onebitResult_t result = ReadAddresses(addresses, address_bytes);
  if (result != onebitSuccess) return result;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  std::vector<Connection> connections;
  std::string problem;
  result = mesh_->Connect(
      addresses_, deadline, [this] { return is_aborted(); }, &connections, &problem);
  if (!problem.empty()) context_->Warn("rank %d: %s", rank_, problem.c_str());
  if (result != onebitSuccess) return result;
  peers_ = std::vector<Peer>(static_cast<size_t>(nranks_));
  scratch_ =
      std::make_unique_for_overwrite<std::byte[]>(FrameRing::PieceBytes(mesh_->ring_capacity()));
  for (int rank = 0; rank < nranks_; ++rank) {
    result = rank == rank_ ? AddSelf()
                           : AddPeer(rank, std::move(connections[static_cast<size_t>(rank)]));
    if (result != onebitSuccess) return result;
  }
  MentionDetours();
  mesh_.reset();
  if (rank_ == 0 && has_tcp_) context_->MentionRdma();
  return onebitSuccess;
}

// Says which ranks of this host are reached by TCP. The end that has connected knows why.
void SocketFrameTransport::MentionDetours() const {
  int first = rank_;
  int count = 0;
  for (int rank = rank_ - 1; rank >= 0; --rank) {
    if (peers_[static_cast<size_t>(rank)].tcp == nullptr || !mesh_->IsCandidate(rank)) continue;
    first = rank;
    ++count;
  }
  if (count == 0) return;
  const std::string& reason = mesh_->memory_reason(first);
  context_->Warn(
      "rank %d reaches rank %d of its host (and %d more) by TCP, not by shared memory: %s", rank_,
      first, count - 1, reason.empty() ? "it did not answer in time" : reason.c_str());
}

onebitResult_t SocketFrameTransport::AddSelf() {
  const size_t capacity = mesh_->ring_capacity();
  // Zeros, as fresh shared memory has.
  own_ring_ = std::make_unique<std::byte[]>(FrameRing::BytesOf(capacity) + 64);
  const auto at = reinterpret_cast<uintptr_t>(own_ring_.get());
  auto* const memory = new (own_ring_.get() + (64 - at % 64) % 64) FrameRing::Memory{};
  Peer& self = peers_[static_cast<size_t>(rank_)];
  self.to.emplace(memory, capacity);
  self.from.emplace(memory, capacity);
  self.link.pieceBytes = FrameRing::PieceBytes(capacity);
  self.link.isHere = 1;
  self.link.isReached = 1;
  self.link.SetHost(address_.head.host_name);
  self.link.SetRoute("memory");
  shared_.push_back(rank_);
  return onebitSuccess;
}

onebitResult_t SocketFrameTransport::AddPeer(int rank, Connection connection) {
  const Address& address = addresses_[static_cast<size_t>(rank)];
  Peer& peer = peers_[static_cast<size_t>(rank)];
  peer.link.isHere = address.head.machine == address_.head.machine ? 1 : 0;
  peer.link.SetHost(address.head.host_name);
  peer.link.isReached = 1;
  int fd = connection.socket.get();
  if (connection.is_shared()) {
    const size_t capacity = mesh_->ring_capacity();
    peer.segment = std::move(connection.segment);
    peer.memory = reinterpret_cast<PairMemory*>(peer.segment.memory());
    peer.own_end = rank_ < rank ? 0 : 1;
    peer.to.emplace(peer.memory->ring(1 - peer.own_end, capacity), capacity);
    peer.from.emplace(peer.memory->ring(peer.own_end, capacity), capacity);
    peer.doorbell = std::move(connection.doorbell);
    peer.socket = std::move(connection.socket);
    peer.link.pieceBytes = FrameRing::PieceBytes(capacity);
    peer.link.SetRoute("shared memory");
    shared_.push_back(rank);
  } else {
    std::unique_ptr<FrameCipher> cipher;
    if (address_.seals != 0) {
      cipher = std::make_unique<FrameCipher>(AgreedCipher(address_.ciphers, address.ciphers),
                                             connection.sending_key, connection.receiving_key);
    }
    peer.tcp = std::make_unique<TcpLink>(std::move(connection.socket), &peer.link,
                                         static_cast<size_t>(address_.head.eager_bytes),
                                         std::move(cipher));
    peer.link.pieceBytes = TcpLink::kPieceBytes;
    peer.link.isPaced = 1;
    peer.link.SetRoute(context_->RouteOver(fd));
    has_tcp_ = true;
  }
  if (!Watch(epoll_, fd, EPOLLIN | EPOLLRDHUP, static_cast<uint64_t>(rank))) {
    context_->Warn("rank %d: epoll: %s", rank_, std::strerror(errno));
    return onebitSystemError;
  }
  return onebitSuccess;
}

onebitResult_t SocketFrameTransport::Abort() {
  MarkAborted();
  Write(abort_.get());
  return onebitSuccess;
}

void SocketFrameTransport::Lose(Peer* peer, const char* reason) {
  if (peer->link.is_lost()) return;
  peer->link.loss = reason;
  has_losses_ = true;
}

// Wakes the peer if it sleeps.
void SocketFrameTransport::Ring(const Peer& peer) const {
  if (peer.memory == nullptr) return;
  // This operation and the exchange of SetSleeping are ordered, and the later one sees the other:
  // either the peer sees the frame before it sleeps, or this finds the flag.
  if (peer.memory->sleeps[1 - peer.own_end].is_set.fetch_or(0, std::memory_order_acq_rel) != 0) {
    Write(peer.doorbell.get());
  }
}

Sent SocketFrameTransport::Send(int rank, onebitFrameKind kind, std::span<const std::byte> header,
                                std::span<const std::byte> payload) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.link.is_lost()) return Sent::kFailed;
  if (peer.tcp != nullptr) {
    const Sent sent = peer.tcp->Send(kind, header, payload);
    has_broken_ |= peer.tcp->is_broken();
    if (peer.link.is_lost()) has_losses_ = true;
    WatchRoom(&peer, rank);
    return sent;
  }
  switch (peer.to->Write(kind, header, payload)) {
    case FrameRing::Result::kDone:
      Ring(peer);
      return Sent::kYes;
    case FrameRing::Result::kNothing:
      return Sent::kNoRoom;
    case FrameRing::Result::kBroken:
      break;
  }
  Lose(&peer, kBroken);
  return Sent::kFailed;
}

// Has the system tell when the socket takes more, while something is queued.
void SocketFrameTransport::WatchRoom(Peer* peer, int rank) {
  const bool awaits_room = peer->tcp->has_queued() && !peer->link.is_lost();
  if (awaits_room == peer->awaits_room) return;
  peer->awaits_room = awaits_room;
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP | (awaits_room ? EPOLLOUT : 0u),
                    .data = {.u64 = static_cast<uint64_t>(rank)}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, peer->tcp->fd(), &event);
}

bool SocketFrameTransport::ReceiveShared(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.link.is_lost()) return false;
  const FrameRing::Result found =
      plugin::Deliver(&*peer.from, kFramesPerTurn, scratch_.get(), rank, sink_, [&peer] {
        if (peer.memory != nullptr) Write(peer.doorbell.get());
      });
  if (found == FrameRing::Result::kBroken) Lose(&peer, kBroken);
  return found != FrameRing::Result::kNothing;
}

// Serves the sockets that have something, after at most `timeout_ms`; -1 waits for ever.
bool SocketFrameTransport::CheckSockets(int timeout_ms) {
  bool has_moved = false;
  epoll_event events[32];
  const int count = epoll_wait(epoll_.get(), events, 32, timeout_ms);
  for (int i = 0; i < count; ++i) {
    const uint64_t mark = events[i].data.u64;
    if (mark == kDoorbell) {
      uint64_t rings = 0;
      [[maybe_unused]] const ssize_t got = read(doorbell_.get(), &rings, sizeof rings);
      has_moved = true;  // it told of frames or of room, and tells no more
      continue;
    }
    if (mark == kAbort) continue;
    Peer& peer = peers_[static_cast<size_t>(mark)];
    if (peer.tcp == nullptr) {
      // Frames that the peer had written before are still there.
      while (ReceiveShared(static_cast<int>(mark))) {
      }
      Lose(&peer, kEnded);
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peer.socket.get(), nullptr);
      has_moved = true;
      continue;
    }
    if ((events[i].events & EPOLLOUT) != 0) has_moved |= peer.tcp->Flush();
    if ((events[i].events & ~static_cast<uint32_t>(EPOLLOUT)) != 0 || peer.tcp->is_broken()) {
      has_moved |= peer.tcp->Receive(static_cast<int>(mark), sink_);
    }
    if (peer.link.is_lost()) {
      has_losses_ = true;
      has_moved = true;
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peer.tcp->fd(), nullptr);
      continue;
    }
    has_broken_ |= peer.tcp->is_broken();
    WatchRoom(&peer, static_cast<int>(mark));
  }
  return has_moved;
}

void SocketFrameTransport::StopPlacing(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.tcp != nullptr) peer.tcp->StopPlacing();
}

bool SocketFrameTransport::Describe(int rank, char* text, size_t capacity) const {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  const std::string trouble = peer.tcp == nullptr ? "" : peer.tcp->Trouble();
  std::snprintf(text, capacity, "%s%s%s", peer.link.route, trouble.empty() ? "" : ", ",
                trouble.c_str());
  return !trouble.empty();
}

bool SocketFrameTransport::is_flushed() const {
  return std::ranges::all_of(
      peers_, [](const Peer& peer) { return peer.tcp == nullptr || peer.tcp->has_left(); });
}

// Reads what the peers had sent before their sockets broke; then the links are lost.
void SocketFrameTransport::ReadBroken() {
  has_broken_ = false;
  for (int rank = 0; rank < nranks_; ++rank) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    if (peer.tcp == nullptr || !peer.tcp->is_broken() || peer.link.is_lost()) continue;
    peer.tcp->Receive(rank, sink_);
    (peer.link.is_lost() ? has_losses_ : has_broken_) = true;
  }
}

bool SocketFrameTransport::Progress() {
  bool has_moved = has_broken_;
  if (has_broken_) ReadBroken();
  for (const int rank : shared_) {
    has_moved |= ReceiveShared(rank);
    if (lacks_room_ && peers_[static_cast<size_t>(rank)].to->TakeRoom()) ReportRoom();
  }
  if (has_tcp_ || ++looks_ % kLooksPerSocketLook == 0) has_moved |= CheckSockets(0);
  return has_moved;
}

bool SocketFrameTransport::HasFrames() const {
  return std::ranges::any_of(shared_, [this](int rank) {
    const Peer& peer = peers_[static_cast<size_t>(rank)];
    return !peer.link.is_lost() && peer.from->has_frames();
  });
}

void SocketFrameTransport::SetSleeping(bool is_sleeping) {
  for (const int rank : shared_) {
    const Peer& peer = peers_[static_cast<size_t>(rank)];
    if (peer.memory == nullptr) continue;
    peer.memory->sleeps[peer.own_end].is_set.exchange(is_sleeping ? 1 : 0,
                                                      std::memory_order_acq_rel);  // see Ring
  }
}

void SocketFrameTransport::Sleep(uint64_t timeout_ns) {
  if (has_broken_) return;
  const uint64_t start = context_->Now();
  // Peers of other hosts need no processor of this one.
  if (shared_.size() > 1) {
    const uint64_t yield_ns = std::min(timeout_ns, kYieldNs);
    do {
      if (HasFrames() || is_aborted() || (has_tcp_ && CheckSockets(0))) return;
      sched_yield();
    } while (context_->Now() - start < yield_ns);
  }
  SetSleeping(true);
  const uint64_t left_ns = timeout_ns - std::min(timeout_ns, context_->Now() - start);
  const uint64_t left_ms = std::min<uint64_t>((left_ns + kNsPerMs - 1) / kNsPerMs, 1000);
  if (!HasFrames()) CheckSockets(static_cast<int>(left_ms));
  SetSleeping(false);
}

}  // namespace onebit::sockets
