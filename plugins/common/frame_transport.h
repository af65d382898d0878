// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// FrameTransport: what the endpoints of all frame transports share.
#pragma once

#include <onebit/transport.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "plugins/common/address_head.h"

namespace onebit::plugin {

// The path to one rank, and the memory of its texts.
class Link : public onebitTransportLink {
 public:
  Link() : onebitTransportLink{.structSize = sizeof(onebitTransportLink)} {}
  Link(const Link&) = delete;  // the texts stay where they are
  Link& operator=(const Link&) = delete;

  void SetHost(std::string host) {
    host_text_ = std::move(host);
    this->host = host_text_.c_str();
  }
  void SetRoute(std::string route) {
    route_text_ = std::move(route);
    this->route = route_text_.c_str();
  }
  uint64_t in_flight() const { return taken - sent; }
  bool is_lost() const { return loss != nullptr; }

 private:
  std::string host_text_;
  std::string route_text_;
};

enum class Sent { kYes, kNoRoom, kFailed };

// Receives what arrives: the library's functions.
class FrameSink {
 public:
  explicit FrameSink(const onebitTransportCommInfo& info) : info_(info) {}

  // Returns where the payload of a frame goes; null: to the transport's own memory.
  std::byte* Place(int peer, const void* header, size_t header_bytes, size_t payload_bytes) const {
    if (info_.placeFrame == nullptr) return nullptr;
    return static_cast<std::byte*>(
        info_.placeFrame(info_.argument, peer, header, header_bytes, payload_bytes));
  }
  // The memory is valid during the call. `peer`: whose link the frame came by; -1: unknown.
  void OnFrame(int peer, const void* header, size_t header_bytes, const void* payload,
               size_t payload_bytes) const {
    info_.onFrame(info_.argument, peer, header, header_bytes, payload, payload_bytes);
  }
  void OnLoss() const { info_.onLoss(info_.argument); }
  void OnEvent() const { info_.onEvent(info_.argument); }

 private:
  const onebitTransportCommInfo info_;
};

// Base of a transport's endpoint. FrameTable lists the members that a derived class needs.
class FrameTransport {
 public:
  explicit FrameTransport(const onebitTransportCommInfo& info)
      : sink_(info), rank_(info.rank), nranks_(info.nranks), comm_id_(info.commId) {}
  FrameTransport(const FrameTransport&) = delete;
  FrameTransport& operator=(const FrameTransport&) = delete;

  int ranks() const { return nranks_; }
  // Both are thread-safe.
  void MarkAborted() { is_aborted_.store(true, std::memory_order_release); }
  bool is_aborted() const { return is_aborted_.load(std::memory_order_acquire); }
  bool is_connected() const { return is_connected_; }
  void set_connected() { is_connected_ = true; }
  // A short frame found no room: the library waits for an event before it tries again.
  void set_lacks_room() { lacks_room_ = true; }
  // Tells the library that it may try again.
  void ReportRoom() {
    if (std::exchange(lacks_room_, false)) sink_.OnEvent();
  }
  // Tells the library of links that were lost since the last call.
  void ReportLosses() {
    if (std::exchange(has_losses_, false)) sink_.OnLoss();
  }

 protected:
  ~FrameTransport() = default;

  // The head of this rank's address.
  template <typename Options>
  AddressHead HeadWith(const Options& options, uint64_t machine) const {
    return WithHostName({.magic = 0,
                         .checksum = 0,
                         .comm_id = comm_id_,
                         .machine = machine,
                         .rank = static_cast<uint32_t>(rank_),
                         .nranks = static_cast<uint32_t>(nranks_),
                         .eager_bytes = static_cast<uint32_t>(options.eager_bytes),
                         .early_bytes = static_cast<uint32_t>(options.early_bytes),
                         .host_name = {}});
  }

  const FrameSink sink_;
  const int rank_;
  const int nranks_;
  const uint64_t comm_id_;
  bool has_losses_ = false;
  bool lacks_room_ = false;

 private:
  std::atomic<bool> is_aborted_{false};
  bool is_connected_ = false;
};

}  // namespace onebit::plugin
