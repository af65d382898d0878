// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// UcxFrameTransport: sends frames as UCX active messages, with one worker per endpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plugins/common/frame_transport.h"
#include "plugins/common/slot_pool.h"
#include "plugins/transport_ucx/ucx_address.h"
#include "plugins/transport_ucx/ucx_context.h"
#include "plugins/transport_ucx/worker.h"

namespace onebit::ucx {

class UcxFrameTransport final : public plugin::FrameTransport {
 public:
  static onebitResult_t Create(Context* context, const onebitTransportCommInfo& info,
                               std::unique_ptr<UcxFrameTransport>* frames);
  ~UcxFrameTransport();

  onebitResult_t GetAddress(void* address, size_t* bytes);
  onebitResult_t Connect(const void* const* addresses, const size_t* address_bytes,
                         uint64_t timeout_ms);
  onebitResult_t Abort();
  plugin::Link* link(int rank) { return &links_[static_cast<size_t>(rank)]; }
  plugin::Sent Send(int rank, onebitFrameKind kind, std::span<const std::byte> header,
                    std::span<const std::byte> payload);
  bool Progress();
  void Sleep(uint64_t timeout_ns);
  void StartFlush();
  bool is_flushed() const;

 private:
  UcxFrameTransport(Context* context, const onebitTransportCommInfo& info);

  static void OnArrival(void* argument, const void* header, size_t header_bytes,
                        const void* payload, size_t payload_bytes);
  static void OnGreeting(void* argument, uint32_t rank);
  plugin::Sent Open(UcxLink* link);
  void Park();
  onebitResult_t ReadAddresses(const void* const* addresses, const size_t* address_bytes);
  onebitResult_t MakeLinks(const void* const* addresses);

  Context* const context_;
  int abort_fd_ = -1;  // readable once the endpoint was aborted
  std::unique_ptr<Worker> worker_;
  std::vector<UcxLink> links_;  // to all ranks, after Open
  Staging short_frames_;        // messages and controls
  Staging pieces_;              // of payloads
};

}  // namespace onebit::ucx
