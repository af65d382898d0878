// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The compressors of a communicator's calls.
#pragma once

#include <onebit/onebit.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "plugins/nccl_preload/call_policy.h"
#include "plugins/nccl_preload/data_call.h"
#include "plugins/nccl_preload/linked_onebit.h"

namespace onebit::preload {

// The sum over residuals of this rank's inputs (worker residuals).
struct Residuals {
  double sum_of_squares = 0;
  uint64_t elements = 0;

  Residuals& operator+=(const Residuals& other) {
    sum_of_squares += other.sum_of_squares;
    elements += other.elements;
    return *this;
  }
};

// A compressor is made when it is needed first, and destroyed with this object: to destroy one
// waits for its calls on the device.
class CallCompressors {
 public:
  CallCompressors(const LinkedOnebit& onebit, int rank, int ranks)
      : onebit_(onebit), rank_(rank), ranks_(ranks) {}
  CallCompressors(const CallCompressors&) = delete;
  CallCompressors& operator=(const CallCompressors&) = delete;

  int rank() const { return rank_; }

  // Begins a group of calls, or a single one: compressors without residuals are free again.
  void BeginCalls() { uses_.clear(); }
  // Returns the compressor of the next call in *found.
  onebitResult_t Find(onebitComm_t comm, const DataCall& call, const Decision& decision,
                      onebitCompressor_t* found);
  // The tensor has no further calls.
  void End(uint64_t tensor);

  // Reads the residuals of reductions and all-to-alls, by way of the host. Waits for the device.
  Residuals ReadResiduals() const;

 private:
  using Pointer = std::unique_ptr<onebitCompressor_s, onebitResult_t (*)(onebitCompressor_t)>;
  struct Entry {
    Pointer compressor;
    uint64_t residual_elements;  // 0: none, or not of an input
  };
  // A tensor, and which of its calls in a group.
  using Key = std::pair<uint64_t, uint32_t>;

  // Messages of one direction and shape. Both ranks see them in the same order, but in groups of
  // their own, and their compressors must have the same tensorId: message number n takes slot n
  // modulo kSlots.
  struct Messages {
    uint32_t next_slot = 0;
    std::map<uint32_t, Pointer> by_slot;
  };
  using Direction = std::pair<int, int>;  // sender and receiver

  onebitResult_t FindForMessage(onebitComm_t comm, const DataCall& call, const Decision& decision,
                                onebitCompressor_t* found);
  int64_t MessageId(const Direction& direction, uint64_t shape, uint32_t slot) const;
  onebitResult_t Create(onebitComm_t comm, const CallFacts& facts, const Compression& compression,
                        int64_t tensor_id, Pointer* made) const;

  const LinkedOnebit& onebit_;
  const int rank_;
  const int ranks_;
  // Compressors of collectives have the same numbers on all ranks, however many messages each has.
  int64_t next_id_ = 0;
  std::map<Key, Entry> by_tensor_;
  std::map<uint64_t, uint32_t> uses_;                            // of tensors, since BeginCalls
  std::map<std::pair<Direction, uint64_t>, Messages> messages_;  // by direction and shape
  std::vector<Pointer> ended_;
};

}  // namespace onebit::preload
