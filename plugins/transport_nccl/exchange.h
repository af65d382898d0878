// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Exchange: what one rank hands to NCCL at a time, together with the other ranks of its thread.
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
  enum class Kind { kSend, kReceive, kAllReduce };

  Kind kind = Kind::kSend;
  int peer = 0;                  // not of an allreduce
  const void* input = nullptr;   // of a send or an allreduce
  void* output = nullptr;        // of a receive or an allreduce
  size_t count = 0;              // bytes; of an allreduce elements
  onebitDataType_t type = {};    // of an allreduce
  onebitRedOp_t op = onebitSum;  // likewise
  onebitStream_t stream = nullptr;
};

// Of one endpoint, for its thread; the counters for any.
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
  // relaxed: numbers that nothing else depends on.
  std::atomic<uint64_t> bytes_sent_{0};
  std::atomic<uint64_t> messages_sent_{0};
};

// Hands all to NCCL, in one group of its for all communicators that block, one for those that do
// not and one for joined ones; or nothing if one of them cannot be: ranks of one thread may wait
// for each other, in connecting for the first time and in starting kernels. When this returns
// success all of it has reached the streams. Once it has begun, an error or an abort of one is an
// error of all.
onebitResult_t StartTogether(std::span<Exchange* const> exchanges);

// The groups that a thread has begun and not ended. What is in them starts at the end of the last
// one.
class ThreadGroups {
 public:
  static ThreadGroups& OfThisThread();

  // May throw std::bad_alloc; then nothing has begun.
  void Begin(Exchange* exchange);
  // Of one that has begun.
  onebitResult_t End();
  // It goes away, in the midst of a group or not.
  void Forget(const Exchange* exchange, bool has_begun);

 private:
  std::vector<Exchange*> exchanges_;
  size_t open_ = 0;
};

}  // namespace onebit::nccl
