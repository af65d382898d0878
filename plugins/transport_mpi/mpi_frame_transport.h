// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// MpiFrameTransport: carries frames over a channel of an MPI communicator.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "plugins/common/frame_transport.h"
#include "plugins/transport_mpi/channel.h"
#include "plugins/transport_mpi/mpi_address.h"
#include "plugins/transport_mpi/mpi_context.h"
#include "plugins/transport_mpi/mpi_group.h"

namespace onebit::mpi {

class MpiFrameTransport final : public plugin::FrameTransport {
 public:
  MpiFrameTransport(Context* context, const onebitTransportCommInfo& info);
  ~MpiFrameTransport() override { Close(); }

  onebitResult_t GetAddress(void* address, size_t* bytes) override;
  onebitResult_t Open(const void* const* addresses, const size_t* address_bytes,
                      uint64_t timeout_ns, const std::function<bool()>& is_aborted) override;
  void Close() override;
  plugin::Link* link(int rank) override { return channel_->link(rank); }
  uint32_t ranks_here() const override { return ranks_here_; }
  plugin::Sent Send(int rank, plugin::FrameKind kind, std::span<const std::byte> header,
                    std::span<const std::byte> payload) override;
  bool Progress() override;
  void Sleep(uint64_t timeout_ns) override;
  void Interrupt() override { is_interrupted_.store(true, std::memory_order_relaxed); }
  onebitResult_t CheckThread() const override;
  bool CanAnnounceAbort() const override;
  void ForgetCallers() override;

  // Valid after Open.
  Channel& channel() { return *channel_; }

 private:
  void HasMoved();
  onebitResult_t ReadAddresses(const void* const* addresses, const size_t* address_bytes,
                               std::vector<Address>* all) const;
  onebitResult_t CheckRanks(const std::vector<Address>& all) const;
  onebitResult_t MakeComm(const std::vector<Address>& all, uint64_t timeout_ns,
                          const std::function<bool()>& is_aborted, MPI_Comm* comm);

  Context* const context_;
  const int rank_;
  const int nranks_;
  const uint64_t comm_id_;
  std::shared_ptr<Group> group_;  // null: the communicator is made from MPI_COMM_WORLD
  std::unique_ptr<Channel> channel_;
  uint32_t ranks_here_ = 0;
  uint64_t pause_ns_ = 0;  // length of the next sleep
  int idle_sleeps_ = 0;    // sleeps since a frame moved
  // relaxed: a hint to look, which publishes nothing.
  std::atomic<bool> is_interrupted_{false};
};

}  // namespace onebit::mpi
