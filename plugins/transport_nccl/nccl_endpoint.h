// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// NcclEndpoint: one rank's end of a communicator, with messages from and to device memory.
#pragma once

#include <onebit/transport.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "plugins/transport_nccl/address.h"
#include "plugins/transport_nccl/communicator.h"
#include "plugins/transport_nccl/context.h"

namespace onebit::nccl {

// One thread at a time; Abort, AsyncError: any.
class NcclEndpoint {
 public:
  struct Request;  // there is none: the transport has no host face

  NcclEndpoint(Context* context, const onebitTransportCommInfo& info,
               std::shared_ptr<Communicator> communicator);
  ~NcclEndpoint();

  onebitResult_t GetAddress(void* address, size_t* bytes);
  onebitResult_t Connect(const void* const* addresses, const size_t* address_bytes,
                         uint64_t timeout_ms);
  onebitResult_t Abort();
  void GetCounters(uint64_t* bytes_sent, uint64_t* messages_sent) const;
  onebitResult_t DescribePeer(int peer, char* text, size_t capacity) const;

  // The calls of a group are gathered here and handed to NCCL at its end, all at once: so whatever
  // happens between them, NCCL's own group, which is the thread's, is not left open.
  onebitResult_t GroupBegin();
  onebitResult_t GroupEnd();
  onebitResult_t Send(int peer, const void* buffer, size_t bytes, onebitStream_t stream);
  onebitResult_t Receive(int peer, void* buffer, size_t bytes, onebitStream_t stream);
  onebitResult_t AllReduce(const void* send, void* recv, size_t count, onebitDataType_t type,
                           onebitRedOp_t op, onebitStream_t stream);
  onebitResult_t AsyncError(char* text, size_t capacity);
  // What is asked of the host face.
  onebitResult_t RefuseHostFace();

 private:
  struct Message {
    bool is_send = false;
    int peer = 0;
    void* buffer = nullptr;  // only read by a send
    size_t bytes = 0;
    onebitStream_t stream = nullptr;
  };

  onebitResult_t CheckUsable() const;
  onebitResult_t Add(const Message& message);
  onebitResult_t Exchange();
  onebitResult_t Start(CommHandle handle);
  void CountSends();

  Context* const context_;
  const uint64_t comm_id_;
  const std::shared_ptr<Communicator> communicator_;
  std::vector<Address> addresses_;  // of all ranks, after Connect
  bool is_connected_ = false;
  bool is_in_group_ = false;
  std::vector<Message> messages_;  // of the group
  // relaxed: numbers that nothing else depends on.
  std::atomic<uint64_t> bytes_sent_{0};
  std::atomic<uint64_t> messages_sent_{0};
};

}  // namespace onebit::nccl
