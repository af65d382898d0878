// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// All-gathers and broadcasts that send what has changed since the call before, without loss.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/aligned_buffer.h"
#include "comm/comm.h"
#include "compressor/compressor.h"
#include "device/memory.h"
#include "exec/engine.h"
#include "lossless/element_work.h"

namespace onebit {

// A rank's copy of a tensor: the elements of the last call, which ranks compare by their digests
// before they send the changes of the next one.
class LosslessCopy {
 public:
  static Result<LosslessCopy> Create(const Compressor::Config& config);

  // The next call sends the tensor in full.
  void Forget() { std::fill(digests_.begin(), digests_.end(), std::nullopt); }
  size_t bytes() const { return elements_.size() + work_->bytes() + received_.size(); }
  // Bytes that this rank has sent in the last call, headers included, and how many of them to other
  // hosts.
  uint64_t sent_bytes() const { return sent_bytes_; }
  uint64_t network_bytes() const { return network_bytes_; }
  // Calls that sent the tensor in full.
  uint64_t full_calls() const { return full_calls_; }

  class Call;  // one rank's part in one

 private:
  Memory elements_;  // where the buffers of calls are
  // The digest of each part that a rank sends; none if no call has made the copy what it is.
  std::vector<std::optional<uint64_t>> digests_;
  std::unique_ptr<ElementWork> work_;
  AlignedBuffer received_;  // packets
  uint64_t sent_bytes_ = 0;
  uint64_t network_bytes_ = 0;
  uint64_t full_calls_ = 0;
};

struct LosslessRequest {
  const void* sendbuff = nullptr;
  void* recvbuff = nullptr;
  uint32_t root = 0;                // of a broadcast
  onebitStream_t stream = nullptr;  // of calls on device memory
};

// Collective on `comm`, whose engine is `engine`; the calling thread has entered it. The buffers
// are where the compressor's configuration says. Waits for the work on the stream. After an error
// recvbuff is as it was.
Status RunLossless(Comm& comm, Engine& engine, const LosslessRequest& request,
                   const Compressor::Config& config, LosslessCopy* copy);

}  // namespace onebit
