// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// MpiFrameTransport: carries frames over a channel of an MPI communicator, and runs MPI's own
// allreduce.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
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
  ~MpiFrameTransport();

  onebitResult_t GetAddress(void* address, size_t* bytes);
  onebitResult_t Connect(const void* const* addresses, const size_t* address_bytes,
                         uint64_t timeout_ms);
  onebitResult_t Abort();
  plugin::Link* link(int rank) { return channel_->link(rank); }
  plugin::Sent Send(int rank, onebitFrameKind kind, std::span<const std::byte> header,
                    std::span<const std::byte> payload);
  bool Progress();
  void Sleep(uint64_t timeout_ns);
  onebitResult_t CheckThread() const;
  bool CanSendFromAnyThread() const;

  onebitResult_t StartAllreduce(const void* send, void* recv, size_t count, onebitDataType_t type,
                                onebitRedOp_t op);
  onebitResult_t TestAllreduce(size_t* bytes_done);
  void CancelAllreduce();

 private:
  void HasMoved();
  onebitResult_t ReadAddresses(const void* const* addresses, const size_t* address_bytes,
                               std::vector<Address>* all) const;
  onebitResult_t CheckRanks(const std::vector<Address>& all) const;
  onebitResult_t MakeComm(const std::vector<Address>& all, uint64_t timeout_ns, MPI_Comm* comm);

  Context* const context_;
  std::shared_ptr<Group> group_;  // null: the communicator is made from MPI_COMM_WORLD
  std::unique_ptr<Channel> channel_;
  uint64_t pause_ns_ = 0;  // length of the next sleep
  int idle_sleeps_ = 0;    // sleeps since a frame moved
};

}  // namespace onebit::mpi
