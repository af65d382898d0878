// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// UcxFrameTransport: sends frames as UCX active messages, with one worker per endpoint.
#pragma once

#include <cstdint>
#include <memory>
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
                               std::unique_ptr<plugin::FrameTransport>* frames);
  ~UcxFrameTransport() override;

  onebitResult_t GetAddress(void* address, size_t* bytes) override;
  onebitResult_t Open(const void* const* addresses, const size_t* address_bytes,
                      uint64_t timeout_ns, const std::function<bool()>& is_aborted) override;
  void Close() override;
  plugin::Link* link(int rank) override { return &links_[static_cast<size_t>(rank)]; }
  uint32_t ranks_here() const override { return ranks_here_; }
  plugin::Sent Send(int rank, plugin::FrameKind kind, std::span<const std::byte> header,
                    std::span<const std::byte> payload) override;
  bool Progress() override;
  void Sleep(uint64_t timeout_ns) override;
  void Interrupt() override;
  void StartFlush() override;
  bool is_flushed() const override;

 private:
  UcxFrameTransport(Context* context, const onebitTransportCommInfo& info);

  static void OnArrival(void* argument, const void* header, size_t header_bytes,
                        const void* payload, size_t payload_bytes);
  onebitResult_t ReadAddresses(const void* const* addresses, const size_t* address_bytes);
  onebitResult_t MakeLinks(const void* const* addresses);

  Context* const context_;
  const int rank_;
  const int nranks_;
  const uint64_t comm_id_;
  int interrupt_fd_ = -1;  // readable after the first interrupt
  std::unique_ptr<Worker> worker_;
  std::vector<UcxLink> links_;  // to all ranks, after Open
  uint32_t ranks_here_ = 0;
  std::unique_ptr<SlotPool> small_slots_;  // for messages and controls
  std::unique_ptr<SlotPool> large_slots_;  // for pieces of payloads
};

}  // namespace onebit::ucx
