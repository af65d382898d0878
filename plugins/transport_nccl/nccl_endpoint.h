// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// NcclEndpoint: one rank's end of a communicator, with messages from and to device memory.
#pragma once

#include <onebit/transport.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "plugins/transport_nccl/communicator.h"
#include "plugins/transport_nccl/exchange.h"
#include "plugins/transport_nccl/nccl_address.h"
#include "plugins/transport_nccl/nccl_context.h"

namespace onebit::nccl {

// One thread at a time; Abort and AsyncError are thread-safe.
class NcclEndpoint {
 public:
  NcclEndpoint(Context* context, const onebitTransportCommInfo& info,
               std::shared_ptr<Communicator> communicator);
  ~NcclEndpoint();

  onebitResult_t GetAddress(void* address, size_t* bytes);
  onebitResult_t Connect(const void* const* addresses, const size_t* address_bytes,
                         uint64_t timeout_ms);
  onebitResult_t Abort();
  void GetCounters(uint64_t* bytes_sent, uint64_t* messages_sent) const;
  onebitResult_t DescribePeer(int peer, char* text, size_t capacity) const;

  // A group's calls are collected and handed to NCCL at its end, all at once, together with those
  // of other endpoints whose groups the thread has begun (exchange.h). So whatever happens between
  // Begin and End, NCCL's own per-thread group is not left open.
  onebitResult_t GroupBegin();
  onebitResult_t GroupEnd();
  onebitResult_t Send(int peer, const void* buffer, size_t bytes, onebitStream_t stream);
  onebitResult_t Receive(int peer, void* buffer, size_t bytes, onebitStream_t stream);
  onebitResult_t Collective(const onebitTransportCollectiveCall& call, onebitStream_t stream);
  onebitResult_t AsyncError(char* text, size_t capacity);

 private:
  onebitResult_t CheckUsable() const;
  onebitResult_t AddMessage(const Operation& message, const void* buffer);
  // Starts the operation at once, or adds it to the group.
  onebitResult_t Add(const Operation& operation);

  Context* const context_;
  const uint64_t comm_id_;
  const std::shared_ptr<Communicator> communicator_;
  std::vector<Address> addresses_;  // of all ranks, after Connect
  bool is_connected_ = false;
  bool is_in_group_ = false;
  Exchange exchange_;  // operations of the group, or a single one
};

}  // namespace onebit::nccl
