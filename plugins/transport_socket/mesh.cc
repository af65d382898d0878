// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/transport_socket/mesh.h"

#include <poll.h>
#include <sys/un.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/format.h"
#include "plugins/common/frame_ring.h"

namespace onebit::sockets {
namespace {

using std::chrono::milliseconds;

// The time a connection has to prove the key, and a rank to offer memory.
constexpr milliseconds kAttempt{5000};
// Connections of others that have proved nothing; beyond that the oldest is closed.
constexpr size_t kMostStrangers = 256;
constexpr int kAcceptsPerLook = 64;
constexpr milliseconds kLook{20};   // for an abort
constexpr milliseconds kPause{50};  // before a rank tries again
constexpr size_t kLargestRing = 256u << 10;
constexpr size_t kMostRingMemory = 8u << 20;
constexpr std::byte kGo{'g'}, kYes{'y'}, kNo{'n'};

// The connector's first words. Bytes only, no padding.
struct Hello {
  ClientHello hello;
  uint32_t rank;
};
static_assert(sizeof(Hello) == 44);

std::string WithErrno(const std::string& call) { return call + ": " + std::strerror(errno); }

bool IsShortOfDescriptors() { return errno == EMFILE || errno == ENFILE; }

std::pair<sockaddr_un, socklen_t> AbstractAddress(const LocalName& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // the first byte is 0: no file
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

LocalName RandomName() {
  constexpr char kDigits[] = "0123456789abcdef";
  LocalName name;
  const JobKey random = RandomKey();
  for (size_t i = 0; i < name.size(); ++i) name[i] = kDigits[random.bytes[i] % 16];
  return name;
}

uint64_t RandomNumber() {
  uint64_t number = 0;
  const JobKey random = RandomKey();
  std::memcpy(&number, random.bytes.data(), sizeof number);
  return number | 1;  // never 0, which fresh memory holds
}

// Sends a few bytes, and descriptors. The socket's buffer is empty, so they fit.
bool SendWords(int socket, const void* bytes, size_t count, std::span<const int> descriptors = {}) {
  iovec vector{const_cast<void*>(bytes), count};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(head), descriptors.data(), descriptors.size_bytes());
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(count);
}

enum class Read { kAll, kMore, kFailed };

// Reads until `count` bytes are there. Takes descriptors only where they are expected: others are
// closed by the system, unseen.
template <size_t kDescriptors>
Read ReadWords(int socket, std::span<std::byte> buffer, size_t* filled, size_t count,
               std::array<Descriptor, kDescriptors>* descriptors) {
  while (*filled < count) {
    iovec vector{buffer.data() + *filled, count - *filled};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
    if (descriptors != nullptr) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
    }
    const ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return Read::kMore;
    if (got <= 0) return Read::kFailed;
    *filled += static_cast<size_t>(got);
    if (descriptors == nullptr) continue;
    for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
         head = CMSG_NXTHDR(&message, head)) {
      if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
      const size_t passed = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < passed; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
        Descriptor taken(fd);
        if (i < kDescriptors) (*descriptors)[i] = std::move(taken);
      }
    }
    if ((message.msg_flags & MSG_CTRUNC) != 0) return Read::kFailed;
  }
  return Read::kAll;
}

Read ReadWords(int socket, std::span<std::byte> buffer, size_t* filled, size_t count) {
  return ReadWords<1>(socket, buffer, filled, count, nullptr);
}

template <typename T>
T FromBytes(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace

size_t Mesh::RingCapacity(size_t peers, size_t eager_bytes) {
  const size_t share = std::bit_floor(kMostRingMemory / std::max<size_t>(peers, 1));
  return std::max(std::min(share, kLargestRing), plugin::FrameRing::CapacityFor(eager_bytes));
}

JobKey Mesh::KeyOfPair(int connector, int acceptor) const {
  return MixedKey(options_.key, Format("socket {} {} {}", options_.comm_id, connector, acceptor));
}

onebitResult_t Mesh::Listen(Address* mine, std::string* problem) {
  auto listening = onebit::Listen(options_.interface);
  if (!listening.ok()) {
    *problem = IsShortOfDescriptors() ? kTooFewDescriptors : listening.status().text();
    return onebitSystemError;
  }
  tcp_ = std::move(listening).value();
  const auto bound = LocalAddress(tcp_);
  if (!bound.ok()) {
    *problem = bound.status().text();
    return onebitSystemError;
  }
  SetSocketAddress(bound.value(), mine);
  mine->shares_memory = 0;
  if (!options_.shares_memory) return onebitSuccess;
  mine->local = RandomName();
  const auto [address, bytes] = AbstractAddress(mine->local);
  local_ = NewSocket(AF_UNIX);
  if (local_.is_open() &&
      bind(local_.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0 &&
      listen(local_.get(), SOMAXCONN) == 0) {
    mine->shares_memory = 1;
  } else {
    *problem = WithErrno("it reaches the ranks of its host by TCP, having no local socket");
  }
  return onebitSuccess;
}

bool Mesh::IsCandidate(int rank) const {
  const Address& mine = (*ranks_)[static_cast<size_t>(options_.rank)];
  const Address& other = (*ranks_)[static_cast<size_t>(rank)];
  return mine.shares_memory != 0 && other.shares_memory != 0 &&
         mine.head.machine == other.head.machine && mine.network == other.network &&
         mine.network != 0;
}

void Mesh::Start(int rank, bool is_local) {
  const Address& to = (*ranks_)[static_cast<size_t>(rank)];
  std::string& reason = reasons_[static_cast<size_t>(rank)];
  const bool is_any = SocketAddressOf(to).is_any();
  const int family = is_any ? options_.server.family() : static_cast<int>(to.family);
  Descriptor socket;
  do {
    socket = NewSocket(is_local ? AF_UNIX : family);
  } while (!socket.is_open() && MakeRoom());
  bool has_begun = socket.is_open();
  if (!has_begun) {
    reason = WithErrno("socket");
  } else if (is_local) {
    const auto [address, bytes] = AbstractAddress(to.local);
    has_begun = connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0;
    if (!has_begun) {
      memory_reasons_[static_cast<size_t>(rank)] = WithErrno("its local socket cannot be reached");
      return Start(rank, false);
    }
  } else {
    SocketAddress address = SocketAddressOf(to);
    if (is_any) {
      address = options_.server;
      address.set_port(static_cast<uint16_t>(to.port));
    }
    has_begun = connect(socket.get(), address.get(), address.size()) == 0 || errno == EINPROGRESS;
    if (!has_begun) reason = WithErrno("connect");
  }
  if (!has_begun) return Pause(rank);
  attempts_.push_back(Attempt{.step = Attempt::Step::kConnecting,
                              .socket = std::move(socket),
                              .is_local = is_local,
                              .rank = rank,
                              .deadline = Clock::now() + kAttempt,
                              .segment = {},
                              .doorbell = Descriptor()});
}

// An attempt without a socket, at whose end the next one starts.
void Mesh::Pause(int rank) {
  attempts_.push_back(Attempt{.step = Attempt::Step::kConnecting,
                              .socket = Descriptor(),
                              .is_local = false,
                              .rank = rank,
                              .deadline = Clock::now() + kPause,
                              .segment = {},
                              .doorbell = Descriptor()});
}

void Mesh::Accept(const Descriptor& listener, bool is_local) {
  for (int i = 0; i < kAcceptsPerLook; ++i) {
    Descriptor socket = AcceptFrom(listener);
    if (!socket.is_open()) {
      if (!MakeRoom()) return;
      continue;
    }
    if (static_cast<size_t>(std::ranges::count_if(attempts_, &Attempt::is_stranger)) >=
        kMostStrangers) {
      DropStranger();
    }
    attempts_.push_back(Attempt{.step = Attempt::Step::kHello,
                                .socket = std::move(socket),
                                .is_local = is_local,
                                .rank = -1,
                                .deadline = Clock::now() + kAttempt,
                                .segment = {},
                                .doorbell = Descriptor()});
  }
}

// Closes the oldest connection that has proved nothing. False if there is none.
bool Mesh::DropStranger() {
  const auto oldest = std::ranges::find_if(attempts_, &Attempt::is_stranger);
  if (oldest == attempts_.end()) return false;
  attempts_.erase(oldest);
  return true;
}

// After a call that failed: true if it lacked a descriptor and can be tried again. As many
// connections as there are ranks to come are probably theirs: each that gave way to another would
// come again, until the time is over.
bool Mesh::MakeRoom() {
  if (!IsShortOfDescriptors()) return false;
  was_short_ = true;
  const auto strangers = std::ranges::count_if(attempts_, &Attempt::is_stranger);
  const auto awaited =
      std::ranges::count_if(connections_->begin() + options_.rank + 1, connections_->end(),
                            [](const Connection& connection) { return !connection.is_made(); });
  const bool has_room = strangers > awaited && DropStranger();
  lacks_descriptors_ = !has_room;
  return has_room;
}

Mesh::Outcome Mesh::Advance(Attempt* attempt) {
  return attempt->step < Attempt::Step::kHello ? AdvanceConnector(attempt)
                                               : AdvanceAcceptor(attempt);
}

Mesh::Outcome Mesh::AdvanceConnector(Attempt* attempt) {
  using Step = Attempt::Step;
  const int fd = attempt->socket.get();
  std::string& reason = reasons_[static_cast<size_t>(attempt->rank)];
  if (attempt->step == Step::kConnecting) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      reason = std::strerror(error);
      return Outcome::kRefused;
    }
    attempt->hello = MakeClientHello();
    const Hello hello{attempt->hello, static_cast<uint32_t>(options_.rank)};
    if (!SendWords(fd, &hello, sizeof hello)) return Outcome::kRefused;
    attempt->step = Step::kServerHello;
  }
  if (attempt->step == Step::kServerHello) {
    const Read read = ReadWords(fd, attempt->received, &attempt->filled, sizeof(ServerHello));
    if (read == Read::kMore) return Outcome::kGoesOn;
    if (read == Read::kFailed) {
      reason = "it has closed the connection";
      return Outcome::kRefused;
    }
    const auto checked = CheckServer(KeyOfPair(options_.rank, attempt->rank), attempt->hello,
                                     FromBytes<ServerHello>(attempt->received));
    if (!checked.ok()) {
      reason = checked.status().text();
      return Outcome::kRefused;
    }
    const Proof& proof = checked.value().proof;
    attempt->keys = checked.value().keys;
    if (!SendWords(fd, proof.data(), proof.size())) return Outcome::kRefused;
    attempt->filled = 0;
    attempt->step = Step::kGo;
    // With the proof the other end may count the connection as made, so this end does not give it
    // up.
    attempt->deadline = Clock::time_point::max();
  }
  if (attempt->step == Step::kGo) {
    const Read read = ReadWords(fd, attempt->received, &attempt->filled, 1);
    if (read == Read::kMore) return Outcome::kGoesOn;
    if (read == Read::kFailed || attempt->received[0] != kGo) {
      reason = "it has refused the connection";
      return Outcome::kRefused;
    }
    attempt->filled = 0;
    if (!attempt->is_local) return Outcome::kMade;
    return OfferMemory(attempt);
  }
  std::array<Descriptor, 1> doorbell;
  const Read read = ReadWords(fd, attempt->received, &attempt->filled, 1, &doorbell);
  if (read == Read::kMore) return Outcome::kGoesOn;
  const auto* const memory =
      reinterpret_cast<const volatile PairMemory*>(attempt->segment.memory());
  const bool is_shared = read == Read::kAll && attempt->received[0] == kYes &&
                         doorbell[0].is_open() && memory->answer == attempt->number + 1;
  const std::byte confirmation = is_shared ? kYes : kNo;
  if (!SendWords(fd, &confirmation, 1) || !is_shared) {
    reason = "it cannot map this rank's memory";
    return Outcome::kRefused;
  }
  attempt->doorbell = std::move(doorbell[0]);
  return Outcome::kMade;
}

Mesh::Outcome Mesh::OfferMemory(Attempt* attempt) {
  Descriptor file;
  std::string& reason = reasons_[static_cast<size_t>(attempt->rank)];
  const size_t bytes = PairMemory::BytesOf(ring_bytes_);
  attempt->segment = SharedSegment::Create(bytes, &file, &reason);
  if (!attempt->segment.is_mapped()) return Outcome::kRefused;
  attempt->number = RandomNumber();
  auto* const memory = reinterpret_cast<volatile PairMemory*>(attempt->segment.memory());
  memory->offered = attempt->number;
  const int descriptors[] = {file.get(), options_.doorbell};
  if (!SendWords(attempt->socket.get(), &attempt->number, sizeof attempt->number, descriptors)) {
    reason = WithErrno("passing memory");
    return Outcome::kRefused;
  }
  attempt->step = Attempt::Step::kAnswer;
  return Outcome::kGoesOn;
}

Mesh::Outcome Mesh::AdvanceAcceptor(Attempt* attempt) {
  using Step = Attempt::Step;
  const int fd = attempt->socket.get();
  if (attempt->step == Step::kHello) {
    const Read read = ReadWords(fd, attempt->received, &attempt->filled, sizeof(Hello));
    if (read != Read::kAll) return read == Read::kMore ? Outcome::kGoesOn : Outcome::kRefused;
    const Hello hello = FromBytes<Hello>(attempt->received);
    // Only higher ranks connect, each once.
    if (hello.rank >= ranks_->size() || static_cast<int>(hello.rank) <= options_.rank) {
      return Outcome::kRefused;
    }
    const auto answer =
        AnswerHello(KeyOfPair(static_cast<int>(hello.rank), options_.rank), hello.hello);
    if (!answer.ok()) return Outcome::kRefused;
    if (!SendWords(fd, &answer.value().hello, sizeof(ServerHello))) return Outcome::kRefused;
    attempt->expected = answer.value().expected_proof;
    attempt->keys = answer.value().keys;
    attempt->rank = static_cast<int>(hello.rank);
    attempt->filled = 0;
    attempt->step = Step::kProof;
  }
  if (attempt->step == Step::kProof) {
    const Read read = ReadWords(fd, attempt->received, &attempt->filled, sizeof(Proof));
    if (read != Read::kAll) return read == Read::kMore ? Outcome::kGoesOn : Outcome::kRefused;
    if (!IsSameProof(FromBytes<Proof>(attempt->received), attempt->expected)) {
      return Outcome::kRefused;
    }
    attempt->filled = 0;
    if (!SendWords(fd, &kGo, 1)) return Outcome::kRefused;
    if (!attempt->is_local) return Outcome::kMade;
    attempt->step = Step::kOffer;
  }
  if (attempt->step == Step::kOffer) return AnswerOffer(attempt);
  const Read read = ReadWords(fd, attempt->received, &attempt->filled, 1);
  if (read == Read::kMore) return Outcome::kGoesOn;
  return read == Read::kAll && attempt->received[0] == kYes ? Outcome::kMade : Outcome::kRefused;
}

Mesh::Outcome Mesh::AnswerOffer(Attempt* attempt) {
  const int fd = attempt->socket.get();
  std::array<Descriptor, 2> passed;  // memory, doorbell
  const Read read =
      ReadWords(fd, attempt->received, &attempt->filled, sizeof attempt->number, &passed);
  if (read == Read::kMore) return Outcome::kGoesOn;
  if (read == Read::kFailed) return Outcome::kRefused;
  attempt->filled = 0;
  attempt->number = FromBytes<uint64_t>(attempt->received);
  std::string& reason = reasons_[static_cast<size_t>(attempt->rank)];
  const size_t bytes = PairMemory::BytesOf(ring_bytes_);
  if (passed[0].is_open() && passed[1].is_open()) {
    attempt->segment = SharedSegment::Map(passed[0], bytes, &reason);
  }
  auto* const memory = reinterpret_cast<volatile PairMemory*>(attempt->segment.memory());
  const bool is_shared = attempt->segment.is_mapped() && memory->offered == attempt->number;
  if (is_shared) memory->answer = attempt->number + 1;
  const std::byte answer = is_shared ? kYes : kNo;
  const int doorbell[] = {options_.doorbell};
  if (!SendWords(fd, &answer, 1, doorbell) || !is_shared) return Outcome::kRefused;
  attempt->doorbell = std::move(passed[1]);
  attempt->step = Attempt::Step::kConfirm;
  attempt->deadline = Clock::time_point::max();  // the other end may count it as made
  return Outcome::kGoesOn;
}

void Mesh::Finish(Attempt* attempt) {
  Connection& connection = (*connections_)[static_cast<size_t>(attempt->rank)];
  if (connection.is_made()) return;  // the second of a pair proves the key, too, and is not needed
  const bool is_server = attempt->rank > options_.rank;
  connection = {.socket = std::move(attempt->socket),
                .segment = std::move(attempt->segment),
                .doorbell = std::move(attempt->doorbell),
                .sending_key = is_server ? attempt->keys.to_client : attempt->keys.to_server,
                .receiving_key = is_server ? attempt->keys.to_server : attempt->keys.to_client};
}

// The ranks that are not connected yet, with what is known of each; empty: none.
std::string Mesh::Missing() const {
  std::string missing;
  for (int rank = 0; rank < options_.nranks; ++rank) {
    const auto index = static_cast<size_t>(rank);
    if (rank == options_.rank || (*connections_)[index].is_made()) continue;
    const std::string& reason = reasons_[index];
    missing += Format(" {} (on {}{}{})", rank, (*ranks_)[index].head.host_name,
                      reason.empty() ? "" : ": ", reason);
  }
  return missing;
}

// Waits for news, for a moment at most, and moves the attempts on.
void Mesh::Poll() {
  std::vector<pollfd> polled = {{tcp_.get(), POLLIN, 0}, {local_.get(), POLLIN, 0}};
  for (Attempt& one : attempts_) {
    const bool is_connecting = one.step == Attempt::Step::kConnecting;
    one.polled = polled.size();
    polled.push_back({one.socket.get(), static_cast<short>(is_connecting ? POLLOUT : POLLIN), 0});
  }
  poll(polled.data(), polled.size(), static_cast<int>(kLook.count()));
  if ((polled[0].revents & POLLIN) != 0) Accept(tcp_, false);
  if ((polled[1].revents & POLLIN) != 0) Accept(local_, true);
  std::vector<int> starting;
  std::vector<int> pausing;
  for (auto attempt = attempts_.begin(); attempt != attempts_.end();) {
    const bool has_event = attempt->polled != 0 && polled[attempt->polled].revents != 0;
    attempt->polled = 0;
    Outcome outcome = has_event ? Advance(&*attempt) : Outcome::kGoesOn;
    if (outcome == Outcome::kGoesOn && Clock::now() >= attempt->deadline) {
      outcome = Outcome::kRefused;
    }
    if (outcome == Outcome::kGoesOn) {
      ++attempt;
      continue;
    }
    if (outcome == Outcome::kMade) Finish(&*attempt);
    // A rank that connects goes on until the deadline: over TCP, whatever was tried first.
    if (outcome == Outcome::kRefused && attempt->rank >= 0 && attempt->rank < options_.rank) {
      const auto index = static_cast<size_t>(attempt->rank);
      if (attempt->is_local) memory_reasons_[index] = reasons_[index];
      const bool is_over = attempt->is_local || !attempt->socket.is_open();
      (is_over ? starting : pausing).push_back(attempt->rank);
    }
    attempt = attempts_.erase(attempt);
  }
  for (const int rank : starting) Start(rank, false);
  for (const int rank : pausing) Pause(rank);
}

onebitResult_t Mesh::ConnectAll(Clock::time_point deadline, const std::function<bool()>& is_aborted,
                                std::string* problem) {
  for (int rank = 0; rank < options_.rank; ++rank) Start(rank, IsCandidate(rank));
  for (std::string missing = Missing(); !missing.empty(); missing = Missing()) {
    if (is_aborted()) return onebitAborted;
    if (lacks_descriptors_) {
      *problem = kTooFewDescriptors;
      return onebitSystemError;
    }
    if (Clock::now() >= deadline) {
      *problem = Format("not connected in time with rank{}", missing);
      return onebitTimeout;
    }
    Poll();
  }
  return onebitSuccess;
}

onebitResult_t Mesh::Connect(const std::vector<Address>& ranks, Clock::time_point deadline,
                             const std::function<bool()>& is_aborted,
                             std::vector<Connection>* connections, std::string* problem) {
  ranks_ = &ranks;
  connections_ = connections;
  connections->clear();
  connections->resize(ranks.size());
  reasons_.assign(ranks.size(), "");
  memory_reasons_.assign(ranks.size(), "");
  size_t candidates = 0;
  for (int rank = 0; rank < options_.nranks; ++rank) candidates += IsCandidate(rank) ? 1 : 0;
  ring_bytes_ = RingCapacity(candidates, options_.eager_bytes);
  const onebitResult_t result = ConnectAll(deadline, is_aborted, problem);
  if (was_short_ && *problem != kTooFewDescriptors) {
    *problem += (problem->empty() ? "" : "; ") + std::string(kTooFewDescriptors);
  }
  attempts_.clear();
  tcp_ = Descriptor();
  local_ = Descriptor();
  return result;
}

}  // namespace onebit::sockets
