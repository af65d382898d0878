// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Exchange: the operations that one rank hands to NCCL at a time, together with the other ranks of
// its thread.
#pragma once

#include <onebit/transport.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plugins/transport_nccl/communicator.h"

namespace onebit::nccl {

struct Operation {
  enum class Kind { kSend, kReceive, kCollective };

  Kind kind = Kind::kSend;
  // For a send or receive:
  int peer = 0;
  const void* input = nullptr;
  void* output = nullptr;
  size_t bytes = 0;
  onebitTransportCollectiveCall call = {};  // for a collective
  onebitStream_t stream = nullptr;
};

// Belongs to one endpoint and its thread; the counters are thread-safe.
class Exchange {
 public:
  explicit Exchange(std::shared_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  Communicator& communicator() const { return *communicator_; }
  std::vector<Operation>& operations() { return operations_; }
  uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }
  uint64_t messages_sent() const { return messages_sent_.load(std::memory_order_relaxed); }

 private:
  friend class JointStart;
  void CountSends();

  const std::shared_ptr<Communicator> communicator_;
  std::vector<Operation> operations_;
  // relaxed: statistics that nothing else depends on.
  std::atomic<uint64_t> bytes_sent_{0};
  std::atomic<uint64_t> messages_sent_{0};
};

// Hands all exchanges to NCCL, in one group each for blocking, non-blocking and joined
// communicators. Hands over nothing if one of them is unusable, because ranks of one thread may
// wait for each other when they connect for the first time and when they start kernels. After
// success all of it has reached the streams. Once the start has begun, an error or abort of one is
// an error of all.
onebitResult_t StartTogether(std::span<Exchange* const> exchanges);

// The groups that a thread has begun and not ended. Their contents start when the last one ends.
class ThreadGroups {
 public:
  static ThreadGroups& OfThisThread();

  // May throw std::bad_alloc; then nothing has begun.
  void Begin(Exchange* exchange);
  // Requires a Begin before.
  onebitResult_t End();
  // Removes an exchange that is being destroyed, inside a group or not.
  void Forget(const Exchange* exchange, bool has_begun);

 private:
  std::vector<Exchange*> exchanges_;
  size_t open_ = 0;
};

}  // namespace onebit::nccl
