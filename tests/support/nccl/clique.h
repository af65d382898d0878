// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Clique: the ranks of one communicator, and what lies between them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/nccl/stand_in.h"

namespace onebit::testing::nccl {

// A rank of a clique. All is guarded by the clique's mutex.
struct Member {
  bool has_come = false;
  int device = -1;
  bool is_ended = false;  // aborted or revoked: its operations end at once
  ncclResult_t error = ncclSuccess;
  std::vector<bool> connects_to;  // peers that it has had a message to or from
  bool connects_all = false;      // for a collective, which has connections of its own
  int queued = 0;                 // operations that are on a stream and have not run
  int running = 0;                // operations that run
  uint64_t collectives = 0;       // that have begun
  uint64_t exchanges = 0;         // of messages, that have ended
  int64_t until_damage = -1;      // messages that it receives before one that is damaged; < 0: none
  bool is_damaged = false;        // in the exchange that runs
};

// A message that its sender waits with until it is taken.
struct Letter {
  const void* data = nullptr;
  size_t bytes = 0;
  bool is_taken = false;
};

// What all ranks do together. Ranks that do different things are a mismatch.
struct Collective {
  bool is_broadcast = false;
  size_t count = 0;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t op = ncclSum;
  int root = 0;
  std::vector<const void*> inputs;  // by rank
  std::vector<std::byte> result;
  int came = 0;
  int left = 0;
  bool is_done = false;

  bool IsLike(const Collective& other) const;
  // When all have come.
  void Compute();
};

struct Clique {
  explicit Clique(int rank_count);

  bool IsComplete() const;  // under mutex
  std::deque<std::shared_ptr<Letter>>& Mail(int from, int to) {
    return mail[static_cast<size_t>(from * ranks + to)];
  }
  // Under mutex.
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

// The last error's text, of the process as NCCL has it.
void SetLastError(const std::string& text);
const char* LastError();

}  // namespace onebit::testing::nccl
