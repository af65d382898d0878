// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Clique: the ranks of one communicator, and the messages between them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tests/support/nccl/nccl_stand_in.h"

namespace onebit::testing::nccl {

// A rank of a clique. Guarded by the clique's mutex.
struct Member {
  bool has_come = false;
  int device = -1;
  bool is_ended = false;  // aborted or revoked, so its operations end at once
  ncclResult_t error = ncclSuccess;
  std::vector<bool> connects_to;  // peers with which it has exchanged a message
  bool connects_all = false;      // for collectives, which have separate connections
  int queued = 0;                 // operations on a stream that have not started
  int running = 0;                // operations in progress
  uint64_t collectives = 0;       // collectives begun
  uint64_t host_collectives = 0;  // those of them that no stream orders
  uint64_t exchanges = 0;         // exchanges of messages ended
  int64_t until_damage = -1;      // messages it receives before a damaged one; < 0: none is damaged
  bool is_damaged = false;        // in the current exchange
};

// A message whose sender waits until it is received.
struct Letter {
  const void* data = nullptr;
  size_t bytes = 0;
  bool is_taken = false;
};

// A collective operation of all ranks. Ranks that make different calls are a mismatch.
struct Collective {
  enum class Kind { kAllReduce, kReduceScatter, kAllGather, kBroadcast };
  Kind kind = Kind::kAllReduce;
  size_t count = 0;  // elements of one part if a buffer has a part for every rank
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t op = ncclSum;
  int root = 0;
  std::vector<const void*> inputs;  // by rank
  std::vector<std::byte> result;
  int came = 0;
  int left = 0;
  bool is_done = false;

  bool IsLike(const Collective& other) const;
  // Called when all ranks have arrived.
  void Compute();
  // The part of the result that goes to a rank.
  std::span<const std::byte> ResultOf(int rank) const;
};

struct Clique {
  explicit Clique(int rank_count);

  bool IsComplete() const;  // requires the mutex
  // A rank comes. Returns false if it has come already. Requires the mutex.
  bool Enter(int rank, int device);
  std::deque<std::shared_ptr<Letter>>& Mail(int from, int to) {
    return mail[static_cast<size_t>(from * ranks + to)];
  }
  // Requires the mutex.
  void BreakAll(ncclResult_t error);

  const int ranks;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Member> members;
  std::vector<std::deque<std::shared_ptr<Letter>>> mail;
  std::map<uint64_t, std::shared_ptr<Collective>> collectives;  // by number
  bool is_given_up = false;
};

size_t BytesOf(ncclDataType_t type);
// Bytes that a rank gives to a collective, and that it gets.
size_t InputBytes(const Collective& collective, int ranks, int rank);
size_t OutputBytes(const Collective& collective, int ranks);

// Sets the text of the last error, which NCCL keeps per process.
void SetLastError(const std::string& text);
const char* LastError();

}  // namespace onebit::testing::nccl
