// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Peers send arbitrary frames while the endpoint's user receives, accepts, cancels and sends:
// memory may be written only during a receive into it, and a successful receive must have the bytes
// of its message.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <span>
#include <vector>

#include "tests/fuzz/input.h"
#include "tests/support/scripted_frames.h"

namespace {

using onebit::channel::Request;
using onebit::channel::WireHeader;
using onebit::channel::WireType;
using onebit::testing::FramedRank;
using onebit::testing::Input;

constexpr std::byte kUntouched{0xee};
constexpr size_t kGuard = 64;
constexpr size_t kMostPayload = 4096;

void Require(bool claim) {
  if (!claim) std::abort();
}

// Byte `at` of a message's payload. Every frame carries the bytes that follow from its numbers, so
// the content of a complete payload is known.
std::byte ByteOf(uint64_t number, uint64_t at) {
  return static_cast<std::byte>(number * 31 + at + at / 256);
}

std::vector<std::byte> PayloadOf(uint64_t number, uint64_t begin, size_t bytes) {
  std::vector<std::byte> payload(bytes);
  for (size_t i = 0; i < bytes; ++i) payload[i] = ByteOf(number, begin + i);
  return payload;
}

// Memory surrounded by bytes that must not change.
class Guarded {
 public:
  explicit Guarded(size_t bytes) : bytes_(bytes), memory_(bytes + 2 * kGuard, kUntouched) {}
  std::span<std::byte> bytes() { return std::span(memory_).subspan(kGuard, bytes_); }
  std::span<const std::byte> bytes() const { return std::span(memory_).subspan(kGuard, bytes_); }
  // From now on none of it may change.
  void Close() { closed_ = memory_; }
  bool is_sound() const {
    if (!closed_.empty()) return memory_ == closed_;
    for (size_t i = 0; i < kGuard; ++i) {
      if (memory_[i] != kUntouched || memory_[kGuard + bytes_ + i] != kUntouched) return false;
    }
    return true;
  }

 private:
  size_t bytes_;
  std::vector<std::byte> memory_;
  std::vector<std::byte> closed_;
};

bool HoldsPayload(const Guarded& memory, uint64_t number, size_t bytes) {
  const std::vector<std::byte> sent = PayloadOf(number, 0, bytes);
  return std::equal(sent.begin(), sent.end(), memory.bytes().begin());
}

struct Receiving {
  Request* request = nullptr;  // null if it has ended
  uint64_t number = 0;         // of the message, counted per peer
  int peer = 0;
  bool has_header = false;
  Guarded header{onebit::kMessageHeaderBytes};
  std::unique_ptr<Guarded> payload;
};

struct Sending {
  Request* request = nullptr;
  std::vector<std::byte> payload;
};

class User {
 public:
  void Run(Input& input) {
    for (int steps = 0; steps < 400 && !input.empty(); ++steps) {
      switch (const uint8_t choice = input.Next(); choice % 8) {
        case 0:
        case 1:
        case 2:
          Arrive(input);
          break;
        case 3:
          Receive(1 + choice / 8 % 2);
          break;
        case 4:
          if (Receiving* some = Some(choice / 8)) Accept(some);
          break;
        case 5:
          if (Receiving* some = Some(choice / 8)) Cancel(some);
          break;
        case 6:
          Send(1 + choice / 8 % 2, input.Next());
          break;
        case 7:
          Other(choice / 8);
          break;
      }
      TestAll();
    }
  }

 private:
  // Reads type and source, number, then selectors of value, payload and header.
  void Arrive(Input& input) {
    constexpr uint64_t kValues[] = {0,    1,    63,   64,   65,         100,
                                    255,  256,  257,  512,  1023,       1024,
                                    1025, 2000, 4095, 4096, UINT64_MAX, UINT64_MAX - 255};
    constexpr size_t kSizes[] = {0, 1, 64, 65, 144, 256, 512, 976, 1024, 1025, 2000};
    const uint8_t kind = input.Next();
    WireHeader wire = FramedRank::Wire(static_cast<WireType>(kind % 16), input.Next());
    wire.source = kind / 16 % 4;
    wire.value = kValues[input.Next() % std::size(kValues)];
    const uint8_t sizes = input.Next();
    size_t payload_bytes = kSizes[sizes % std::size(kSizes)];
    if (sizes >= 128 && wire.type == WireType::kMessage && wire.value <= FramedRank::kEagerBytes) {
      payload_bytes = wire.value;  // as an honest peer would
    }
    const uint8_t rest = input.Next();
    const size_t header_bytes = (rest & 3) == 0 ? 0 : size_t{rest} % 70;
    wire.header_bytes = static_cast<uint16_t>((rest & 128) == 0 ? header_bytes : rest);
    wire.released = rest / 4 % 8;
    const uint64_t begin = wire.type == WireType::kData ? wire.value : 0;
    rank_.Arrive(wire, PayloadOf(wire.number, begin, payload_bytes),
                 PayloadOf(wire.number, 0, header_bytes));
  }

  void Receive(int peer) {
    auto receiving = std::make_unique<Receiving>();
    receiving->peer = peer;
    const onebitResult_t result =
        rank_.channel().Receive(peer, receiving->header.bytes(), &receiving->request);
    if (result == onebitSuccess) receives_.push_back(std::move(receiving));
  }

  Receiving* Some(size_t choice) {
    return receives_.empty() ? nullptr : receives_[choice % receives_.size()].get();
  }

  void Accept(Receiving* receiving) {
    if (receiving->request == nullptr || !receiving->has_header || receiving->payload) return;
    size_t header_bytes = 0;
    size_t payload_bytes = 0;
    Require(rank_.channel().Probe(*receiving->request, &header_bytes, &payload_bytes) ==
            onebitSuccess);
    Require(header_bytes <= onebit::kMessageHeaderBytes);
    Require(HoldsPayload(receiving->header, receiving->number, header_bytes));
    if (payload_bytes > kMostPayload) return Cancel(receiving);
    receiving->payload = std::make_unique<Guarded>(payload_bytes);
    Require(rank_.channel().Accept(receiving->request, receiving->payload->bytes()) ==
            onebitSuccess);
  }

  void Cancel(Receiving* receiving) {
    if (receiving->request == nullptr) return;
    Require(rank_.channel().Cancel(receiving->request) == onebitSuccess);
    End(receiving);
  }

  static void End(Receiving* receiving) {
    receiving->request = nullptr;
    receiving->header.Close();
    if (receiving->payload) receiving->payload->Close();
  }

  void Send(int peer, uint8_t size) {
    auto sending = std::make_unique<Sending>();
    sending->payload.resize(size_t{size} * 16);
    if (rank_.channel().Send(peer, {}, sending->payload, &sending->request) == onebitSuccess) {
      sends_.push_back(std::move(sending));
    }
  }

  void Other(size_t choice) {
    switch (choice % 4) {
      case 0:
        rank_.frames().set_has_room(choice / 4 % 2 != 0);
        break;
      case 1:
        if (choice == 29) rank_.frames().Lose(1);
        break;
      case 2:
        if (!sends_.empty() && sends_.back()->request != nullptr) {
          Require(rank_.channel().Cancel(sends_.back()->request) == onebitSuccess);
          sends_.pop_back();
        }
        break;
      default:
        Require(rank_.channel().Progress() == onebitSuccess);
        break;
    }
  }

  void TestAll() {
    for (const auto& receiving : receives_) {
      if (receiving->request != nullptr) TestOne(receiving.get());
      Require(receiving->header.is_sound());
      Require(receiving->payload == nullptr || receiving->payload->is_sound());
    }
    for (const auto& sending : sends_) {
      onebit::TransferState state = onebit::TransferState::kPending;
      if (sending->request == nullptr) continue;
      if (rank_.channel().Test(sending->request, &state) != onebitSuccess ||
          state == onebit::TransferState::kDone) {
        sending->request = nullptr;
        sending->payload = {};  // the caller's again: AddressSanitizer sees later reads
      }
    }
  }

  void TestOne(Receiving* receiving) {
    onebit::TransferState state = onebit::TransferState::kPending;
    const onebitResult_t result = rank_.channel().Test(receiving->request, &state);
    if (result == onebitSuccess && state == onebit::TransferState::kHeader &&
        !receiving->has_header) {
      receiving->has_header = true;
      receiving->number = receiving->request->number;
    }
    if (result == onebitSuccess && state != onebit::TransferState::kDone) return;
    if (result == onebitSuccess) {
      Require(receiving->payload != nullptr);
      const Guarded& payload = *receiving->payload;
      Require(HoldsPayload(payload, receiving->number, payload.bytes().size()));
    }
    End(receiving);
  }

  // Declared before the rank, which is destroyed first: until then its endpoint may write.
  std::vector<std::unique_ptr<Receiving>> receives_;
  std::vector<std::unique_ptr<Sending>> sends_;
  FramedRank rank_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  User().Run(input);
  return 0;
}
