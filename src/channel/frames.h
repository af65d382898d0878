// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Frames: one endpoint of a frame transport, called through the ABI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "onebit/transport.h"

namespace onebit::channel {

// Addresses of all ranks as the ABI takes them.
struct AddressList {
  explicit AddressList(std::span<const std::vector<std::byte>> addresses) {
    for (const auto& address : addresses) {
      pointers.push_back(address.data());
      sizes.push_back(address.size());
    }
  }
  std::vector<const void*> pointers;
  std::vector<size_t> sizes;
};

// Closes the endpoint at the end. One thread at a time, except Abort and CanSendFromAnyThread.
class Frames {
 public:
  // `functions` must have the members of the frame face.
  Frames(const onebitTransport& functions, void* context)
      : functions_(functions), context_(context) {}
  ~Frames() { Close(); }
  Frames(const Frames&) = delete;
  Frames& operator=(const Frames&) = delete;

  onebitResult_t Open(const onebitTransportCommInfo& info) {
    return functions_.open(context_, &info, &comm_);
  }
  onebitResult_t GetAddress(void* address, size_t* bytes) const {
    return functions_.getAddress(comm_, address, bytes);
  }
  onebitResult_t Connect(const void* const* addresses, const size_t* address_bytes,
                         uint64_t timeout_ms) {
    return functions_.connect(comm_, addresses, address_bytes, timeout_ms);
  }
  void Abort() { static_cast<void>(functions_.abort(comm_)); }
  void Close() {
    if (comm_ != nullptr) static_cast<void>(functions_.close(comm_));
    comm_ = nullptr;
  }

  // After a Connect that succeeded; null if the transport has no such rank.
  const onebitTransportLink* link(int rank) const {
    const onebitTransportLink* link = nullptr;
    return functions_.getLink(comm_, rank, &link) == onebitSuccess ? link : nullptr;
  }
  // onebitInProgress: there is no room now.
  onebitResult_t Send(int rank, onebitFrameKind kind, std::span<const std::byte> header,
                      std::span<const std::byte> payload) {
    return functions_.sendFrame(comm_, rank, kind, header.data(), header.size(), payload.data(),
                                payload.size());
  }
  // False if there was nothing to do.
  bool Progress() {
    int has_moved = 0;
    return functions_.progress(comm_, &has_moved) == onebitSuccess && has_moved != 0;
  }
  void Sleep(uint64_t timeout_ns) { static_cast<void>(functions_.sleep(comm_, timeout_ns)); }

  // Writes why frames to the rank do not arrive, as far as the transport knows. False: it does not.
  bool DescribeTrouble(int rank, char* text, size_t capacity) const {
    return functions_.structSize > offsetof(onebitTransport, describePeer) &&
           functions_.describePeer != nullptr &&
           functions_.describePeer(comm_, rank, text, capacity) == onebitTimeout;
  }

  void StopPlacing(int rank) {
    if (Has(functions_.stopPlacing)) static_cast<void>(functions_.stopPlacing(comm_, rank));
  }
  // Lets the rank copy a payload; only over links that canPull, as the next two.
  bool Offer(int rank, uint64_t number, std::span<const std::byte> payload) {
    return Has(functions_.offer) && functions_.offer(comm_, rank, OfferOf(number), payload.data(),
                                                     payload.size()) == onebitSuccess;
  }
  // False if it was recalled.
  bool Pull(int rank, uint64_t number, std::span<std::byte> target) {
    return Has(functions_.pull) && functions_.pull(comm_, rank, OfferOf(number), target.data(),
                                                   target.size()) == onebitSuccess;
  }
  void Recall(int rank, uint64_t number) {
    if (Has(functions_.recall)) {
      static_cast<void>(functions_.recall(comm_, rank, OfferOf(number)));
    }
  }
  void StartFlush() {
    if (Has(functions_.startFlush)) static_cast<void>(functions_.startFlush(comm_));
  }
  bool is_flushed() const {
    int flushed = 1;
    if (Has(functions_.isFlushed)) static_cast<void>(functions_.isFlushed(comm_, &flushed));
    return flushed != 0;
  }
  onebitResult_t CheckThread() const {
    return Has(functions_.checkThread) ? functions_.checkThread(comm_) : onebitSuccess;
  }
  bool CanSendFromAnyThread() const {
    int can = 1;
    if (Has(functions_.canSendFromAnyThread)) {
      static_cast<void>(functions_.canSendFromAnyThread(comm_, &can));
    }
    return can != 0;
  }

  onebitResult_t StartAllreduce(const void* send, void* recv, size_t count, onebitDataType_t type,
                                onebitRedOp_t op) {
    return Has(functions_.iallreduce) ? functions_.iallreduce(comm_, send, recv, count, type, op)
                                      : onebitInvalidUsage;
  }
  onebitResult_t TestAllreduce(size_t* bytes_done) {
    return functions_.testAllreduce(comm_, bytes_done);
  }
  void CancelAllreduce() {
    if (Has(functions_.cancelAllreduce)) static_cast<void>(functions_.cancelAllreduce(comm_));
  }

 private:
  static int OfferOf(uint64_t number) { return static_cast<int>(number % ONEBIT_TRANSPORT_OFFERS); }

  // True if the plugin was compiled with this member of the table, and has it.
  template <typename Member>
  bool Has(const Member& member) const {
    const auto end = reinterpret_cast<const std::byte*>(&member + 1) -
                     reinterpret_cast<const std::byte*>(&functions_);
    return functions_.structSize >= static_cast<size_t>(end) && member != nullptr;
  }

  const onebitTransport& functions_;
  void* const context_;
  void* comm_ = nullptr;
};

}  // namespace onebit::channel
