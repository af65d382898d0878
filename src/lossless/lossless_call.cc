// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "lossless/lossless_call.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "base/format.h"
#include "exec/run_calls.h"
#include "kernels/lossless.h"

namespace onebit {

using kernels::DataType;

Result<LosslessCopy> LosslessCopy::Create(const Compressor::Config& config) {
  LosslessCopy copy;
  ONEBIT_ASSIGN_OR_RETURN(
      copy.elements_,
      Memory::Create(config.location, config.devices,
                     config.elements() * kernels::BytesOf(config.type), "a tensor's copy"));
  ONEBIT_ASSIGN_OR_RETURN(copy.work_, ElementWork::Create(config.location, config.devices));
  copy.digests_.resize(config.chunks);
  return copy;
}

// One rank's part in a call. Nothing that a caller can see changes before all packets have been
// decoded and their digests compared.
class LosslessCopy::Call {
 public:
  Call(Comm& comm, Engine& engine, const LosslessRequest& request, const Compressor::Config& config,
       LosslessCopy& copy)
      : comm_(comm), engine_(engine), request_(request), config_(config), copy_(copy) {}

  Status Run() {
    copy_.sent_bytes_ = copy_.network_bytes_ = 0;
    Status begun = work().Begin(request_.stream, comm_.options().timeout_ms);
    if (comm_.ranks() == 1) return begun.ok() ? Output() : begun;
    if (!begun.ok()) return comm_.Fail(std::move(begun));  // the others may be waiting already
    engine_.AwaitProxy();  // calls on devices before this one count for themselves
    const uint64_t sent = comm_.counters().bytes_sent.load(std::memory_order_relaxed);
    const uint64_t over_network = comm_.counters().network_bytes.load(std::memory_order_relaxed);
    Status status = Timed([this] { return Prepare(); });
    if (!status.ok()) return comm_.Fail(std::move(status));
    ONEBIT_TRY(ExchangeAccounts());
    status = CompareAccounts();
    if (status.ok() && config_.count != 0) {
      status = IsFull() ? ExchangeElements() : ExchangePackets();
      if (status.ok()) status = Timed([this] { return Finish(); });
    }
    if (!status.ok()) return comm_.Fail(std::move(status));
    copy_.sent_bytes_ = comm_.counters().bytes_sent.load(std::memory_order_relaxed) - sent;
    copy_.network_bytes_ =
        comm_.counters().network_bytes.load(std::memory_order_relaxed) - over_network;
    return OkStatus();
  }

 private:
  // An account of a rank's call, which the others have before it sends anything else (FORMAT.md).
  struct Account {
    uint32_t tensor_id = 0;
    uint32_t root = 0;
    uint64_t count = 0;
    uint64_t packet_bytes = 0;  // 0: it has none that is shorter than its elements
    uint64_t packet = 0;        // digest of the packet
    uint64_t held = 0;          // of the digests of what it holds
    uint64_t now = 0;           // of the elements that it sends
    uint8_t type = 0;
    uint8_t collective = 0;
    uint8_t holds_copy = 0;
    uint8_t zero[9] = {};
    uint32_t check = 0;
  };
  static constexpr size_t kAccountBytes = 64;
  static_assert(sizeof(Account) == kAccountBytes);

  static uint32_t CheckOf(const Account& account) {
    return static_cast<uint32_t>(kernels::cpu::LosslessDigest(&account, offsetof(Account, check)));
  }

  ElementWork& work() const { return *copy_.work_; }
  bool is_all_gather() const { return config_.collective == Collective::kAllGather; }
  size_t rank() const { return static_cast<size_t>(comm_.rank()); }
  size_t ranks() const { return static_cast<size_t>(comm_.ranks()); }
  bool is_sender() const { return is_all_gather() || rank() == request_.root; }
  size_t width() const { return kernels::BytesOf(config_.type); }
  size_t part_bytes() const { return config_.count * width(); }
  size_t copy_bytes() const { return part_bytes() * config_.chunks; }
  std::byte* PartOf(size_t part) const { return copy_.elements_.data() + part * part_bytes(); }
  size_t own_part() const { return is_all_gather() ? rank() : 0; }
  // The rank that sends a part.
  size_t SenderOf(size_t part) const { return is_all_gather() ? part : request_.root; }

  // Counts the time of work that is not a dense call.
  template <typename Body>
  Status Timed(const Body& body) {
    const auto begin = std::chrono::steady_clock::now();
    Status status = body();
    const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - begin;
    Add(comm_.counters().codec_ns, static_cast<uint64_t>(spent.count()));
    Add(comm_.counters().call_ns, static_cast<uint64_t>(spent.count()));
    return status;
  }

  // A packet that this rank has no memory for is as good as one that is too long.
  Status Prepare() {
    own_.tensor_id = config_.tensor_id;
    own_.root = is_all_gather() ? 0 : request_.root;
    own_.count = config_.count;
    own_.type = static_cast<uint8_t>(config_.type);
    own_.collective = static_cast<uint8_t>(config_.collective);
    std::vector<uint64_t> held;
    for (const auto& digest : copy_.digests_) {
      if (digest) held.push_back(*digest);
    }
    own_.holds_copy = held.size() == copy_.digests_.size() ? 1 : 0;
    if (own_.holds_copy != 0) {
      own_.held = kernels::cpu::LosslessDigest(held.data(), held.size() * sizeof(held[0]));
    }
    if (!is_sender()) return OkStatus();
    ONEBIT_TRY(work().FindDigests(request_.sendbuff, part_bytes(), {&own_.now, 1}));
    if (own_.holds_copy == 0) return OkStatus();
    auto packet = work().Encode(request_.sendbuff, PartOf(own_part()), config_.count, width());
    if (!packet.ok() && packet.status().code() != Code::kOutOfMemory) return packet.status();
    if (!packet.ok() || !packet.value()) return OkStatus();
    packet_ = *packet.value();
    own_.packet_bytes = packet_.size();
    own_.packet = kernels::cpu::LosslessDigest(packet_.data(), packet_.size());
    return OkStatus();
  }

  // Makes a dense call that carries `what`, which errors name.
  Status RunDense(const char* what, const CallRequest& request) {
    GroupMember member{.engine = &engine_, .requests = {&request, 1}};
    const Status status = RunCalls({&member, 1}, /*are_entered=*/true);
    if (status.ok()) return status;
    return Error(status.code(), "{} ({} of a lossless {} of tensor {})", status.text(), what,
                 NameOf(config_.collective), config_.tensor_id);
  }

  Status ExchangeAccounts() {
    own_.check = CheckOf(own_);
    accounts_.resize(ranks());
    return RunDense("accounts", {.collective = Collective::kAllGather,
                                 .sendbuff = &own_,
                                 .recvbuff = accounts_.data(),
                                 .count = kAccountBytes,
                                 .type = DataType::kU8,
                                 .can_be_native = false});
  }

  // All ranks see the same accounts, so all decide alike.
  Status CompareAccounts() const {
    for (size_t other = 0; other < ranks(); ++other) {
      const Account& account = accounts_[other];
      if (account.check != CheckOf(account)) {
        return Error(Code::kCorrupt,
                     "rank {}: rank {} sent a damaged account of the changes of tensor {}",
                     comm_.rank(), other, config_.tensor_id);
      }
      const auto compare = [&](const char* name, uint64_t first, uint64_t second) -> Status {
        if (first == second) return OkStatus();
        return Error(Code::kMismatch,
                     "ranks made different calls with lossless compressors: {} is {} on rank 0, "
                     "but {} on rank {}",
                     name, first, second, other);
      };
      const Account& first = accounts_[0];
      ONEBIT_TRY(compare("collective", first.collective, account.collective));
      ONEBIT_TRY(compare("tensor id", first.tensor_id, account.tensor_id));
      ONEBIT_TRY(compare("count", first.count, account.count));
      ONEBIT_TRY(compare("datatype", first.type, account.type));
      ONEBIT_TRY(compare("root", first.root, account.root));
      if (account.packet_bytes >= std::max<size_t>(part_bytes(), 1)) {
        return Error(Code::kCorrupt,
                     "rank {}: rank {} announced {} bytes of changes of tensor {}, which has {}",
                     comm_.rank(), other, account.packet_bytes, config_.tensor_id, part_bytes());
      }
    }
    return OkStatus();
  }

  // True if the tensor is sent in full: some rank does not hold what the others do, or some sender
  // has no packet that is shorter.
  bool IsFull() const {
    for (size_t other = 0; other < ranks(); ++other) {
      if (accounts_[other].holds_copy == 0 || accounts_[other].held != accounts_[0].held) {
        return true;
      }
    }
    for (size_t part = 0; part < config_.chunks; ++part) {
      if (accounts_[SenderOf(part)].packet_bytes == 0) return true;
    }
    return false;
  }

  // Elements on a device pass through host memory.
  Status ExchangeElements() {
    ++copy_.full_calls_;
    copy_.Forget();
    const void* sent = is_sender() ? request_.sendbuff : nullptr;
    std::byte* received = copy_.elements_.data();
    AlignedBuffer on_host;
    if (config_.location.is_device()) {
      ONEBIT_ASSIGN_OR_RETURN(
          on_host,
          AlignedBuffer::Create(copy_bytes(), "the elements of a call with a lossless compressor"));
      received = on_host.data();
      if (is_sender()) {
        std::byte* const own = received + own_part() * part_bytes();
        ONEBIT_TRY(work().Copy(own, sent, part_bytes()));
        sent = own;
      }
    }
    ONEBIT_TRY(RunDense("elements", {.collective = config_.collective,
                                     .sendbuff = sent,
                                     .recvbuff = received,
                                     .count = config_.count,
                                     .type = config_.type,
                                     .root = request_.root,
                                     .can_be_native = false}));
    return work().Copy(copy_.elements_.data(), received, copy_bytes());
  }

  // Packets travel with zeros behind them: those of an all-gather have equal lengths, and calls
  // with nearly as many changes the same plan.
  static size_t Padded(size_t bytes) {
    const size_t step = std::max<size_t>(64, std::bit_floor(bytes) / 64);
    return (bytes + step - 1) / step * step;
  }

  Status ExchangePackets() {
    size_t longest = 0;
    for (size_t part = 0; part < config_.chunks; ++part) {
      longest = std::max<size_t>(longest, accounts_[SenderOf(part)].packet_bytes);
    }
    const size_t room = Padded(longest);
    const size_t bytes = room * config_.chunks + kernels::kLosslessSlack;
    if (copy_.received_.size() < bytes) {
      copy_.received_ = AlignedBuffer();
      ONEBIT_ASSIGN_OR_RETURN(copy_.received_,
                              AlignedBuffer::Create(bytes, "the changes of a tensor"));
    }
    std::byte* const own = copy_.received_.data() + own_part() * room;
    if (is_sender()) {
      std::memcpy(own, packet_.data(), packet_.size());
      std::memset(own + packet_.size(), 0, room - packet_.size());
    }
    ONEBIT_TRY(RunDense("changes", {.collective = config_.collective,
                                    .sendbuff = is_sender() ? own : nullptr,
                                    .recvbuff = copy_.received_.data(),
                                    .count = room,
                                    .type = DataType::kU8,
                                    .root = request_.root,
                                    .can_be_native = false}));
    return Timed([&] { return DecodePackets(room); });
  }

  Status DecodePackets(size_t room) {
    copy_.Forget();  // until all parts are what they should be
    for (size_t part = 0; part < config_.chunks; ++part) {
      const Account& sender = accounts_[SenderOf(part)];
      const std::span packet(copy_.received_.data() + part * room, sender.packet_bytes);
      bool is_whole = kernels::cpu::LosslessDigest(packet.data(), packet.size()) == sender.packet;
      if (is_whole) {
        ONEBIT_ASSIGN_OR_RETURN(is_whole,
                                work().Decode(packet, config_.count, width(), PartOf(part)));
      }
      if (!is_whole) {
        return Error(Code::kCorrupt,
                     "rank {}: the changes of tensor {} from rank {}, {} bytes, came damaged",
                     comm_.rank(), config_.tensor_id, SenderOf(part), packet.size());
      }
    }
    return OkStatus();
  }

  // Compares digests, and only then writes what all ranks now hold.
  Status Finish() {
    std::vector<uint64_t> digests(config_.chunks);
    ONEBIT_TRY(work().FindDigests(copy_.elements_.data(), part_bytes(), digests));
    for (size_t part = 0; part < config_.chunks; ++part) {
      const uint64_t expected = accounts_[SenderOf(part)].now;
      if (digests[part] != expected) {
        return Error(Code::kCorrupt,
                     "rank {}: tensor {} does not come out as rank {} has it: the copy that this "
                     "rank held was damaged, or what it received",
                     comm_.rank(), config_.tensor_id, SenderOf(part));
      }
      copy_.digests_[part] = expected;
    }
    return Output();
  }

  // Writes to recvbuff, unless that is the root's own tensor.
  Status Output() {
    const bool has_it = !is_all_gather() && request_.recvbuff == request_.sendbuff && is_sender();
    if (copy_bytes() == 0 || has_it) return OkStatus();
    const void* const from = comm_.ranks() == 1 ? request_.sendbuff : copy_.elements_.data();
    return work().Copy(request_.recvbuff, from, copy_bytes());
  }

  Comm& comm_;
  Engine& engine_;
  const LosslessRequest& request_;
  const Compressor::Config& config_;
  LosslessCopy& copy_;
  Account own_;
  std::span<const std::byte> packet_;
  std::vector<Account> accounts_;  // of all ranks
};

Status RunLossless(Comm& comm, Engine& engine, const LosslessRequest& request,
                   const Compressor::Config& config, LosslessCopy* copy) {
  try {
    return LosslessCopy::Call(comm, engine, request, config, *copy).Run();
  } catch (const std::bad_alloc&) {
    copy->Forget();
    return comm.FailWithoutMemory();  // the others may be waiting already
  }
}

}  // namespace onebit
