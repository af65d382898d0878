// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// RunRanks: ranks as threads, each with a device, a stream and an endpoint of one communicator.
#pragma once

#include <onebit/transport.h>

#include <barrier>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/nccl/device.h"
#include "tests/nccl/nccl_plugin.h"

namespace onebit::testing {

constexpr uint64_t kTimeoutMs = 20'000;

// Starts an endpoint step by step, as the library does.
class Endpoint {
 public:
  Endpoint() = default;
  ~Endpoint() { Close(); }
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  onebitResult_t Open(const Plugin& plugin, int rank, int ranks, uint64_t comm_id = 7,
                      void* group = nullptr);
  std::vector<std::byte> Address() const;
  onebitResult_t Connect(const std::vector<std::vector<std::byte>>& addresses,
                         uint64_t timeout_ms = kTimeoutMs);
  void Close();

  onebitResult_t GroupBegin() { return table().groupBegin(comm_); }
  onebitResult_t GroupEnd() { return table().groupEnd(comm_); }
  onebitResult_t Send(int peer, const void* buffer, size_t bytes, onebitStream_t stream) {
    return table().sendOnStream(comm_, peer, buffer, bytes, stream);
  }
  onebitResult_t Receive(int peer, void* buffer, size_t bytes, onebitStream_t stream) {
    return table().recvOnStream(comm_, peer, buffer, bytes, stream);
  }
  onebitResult_t AllReduce(const void* send, void* recv, size_t count, onebitDataType_t type,
                           onebitRedOp_t op, onebitStream_t stream) {
    return Collective({.collective = onebitTransportAllReduce,
                       .send = send,
                       .recv = recv,
                       .count = count,
                       .datatype = type,
                       .op = op,
                       .root = 0},
                      stream);
  }
  onebitResult_t Collective(const onebitTransportCollectiveCall& call, onebitStream_t stream) {
    return table().collectiveOnStream(comm_, &call, stream);
  }
  onebitResult_t Abort() { return table().abort(comm_); }
  onebitResult_t AsyncError(std::string* text = nullptr);
  void* comm() const { return comm_; }
  static const onebitTransport& table() { return Plugin::functions(); }

 private:
  void* comm_ = nullptr;
};

struct Rank {
  int rank = 0;
  int ranks = 1;
  Endpoint* endpoint = nullptr;
  const Stream* stream = nullptr;
  std::function<void()> meet;  // waits for all ranks
};

// Connects the ranks, runs `body` on each, and closes all endpoints. Rank r has device r.
void RunRanks(const Plugin& plugin, int ranks, const std::function<void(Rank&)>& body);

// Runs `count` threads, each with device i current.
void RunThreads(int count, const std::function<void(int thread)>& body);

// Exchanges addresses between threads, by rank.
class AddressExchange {
 public:
  explicit AddressExchange(int ranks) : barrier_(ranks), addresses_(static_cast<size_t>(ranks)) {}
  void Wait() { barrier_.arrive_and_wait(); }
  const std::vector<std::vector<std::byte>>& Exchange(int rank, std::vector<std::byte> address) {
    addresses_[static_cast<size_t>(rank)] = std::move(address);
    Wait();
    return addresses_;
  }

 private:
  std::barrier<> barrier_;
  std::vector<std::vector<std::byte>> addresses_;
};

}  // namespace onebit::testing
