// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// RemoteClique: a rank of a clique that another process has, its hub.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tests/support/nccl/clique.h"
#include "tests/support/nccl/frame_link.h"
#include "tests/support/nccl/operations.h"
#include "tests/support/nccl/unique_ids.h"

namespace onebit::testing::nccl {

// The hub runs the rank's operations with those of all others. Here the rank has a mirror of the
// clique: the hub keeps up to date who has come and who connects to this rank, so whatever waits
// for that is the same code as in the hub. If the hub dies, the rank hangs until it aborts.
class RemoteClique {
 public:
  // Null if the hub refuses the rank or does not answer; *error has the cause.
  static std::shared_ptr<RemoteClique> Join(const IdContent& id, int ranks, int rank, int device,
                                            std::string* error);

  const std::shared_ptr<Clique>& mirror() const { return mirror_; }
  // Tells the hub what the mirror's member of this rank connects to.
  void SendConnections();
  // Waits until the operation is done or the rank has ended. Requires the mirror's mutex, which it
  // releases meanwhile.
  void Run(const Operation& operation, std::unique_lock<std::mutex>* lock);
  // Ends the rank in the hub. Thread-safe, waits for nothing.
  void Leave() { link_.ShutDown(); }

 private:
  RemoteClique(int ranks, int rank) : mirror_(std::make_shared<Clique>(ranks)), rank_(rank) {}

  bool AskToJoin(const IdContent& id, int device, std::string* error);
  void ReceiveAll();

  FrameLink link_;
  const std::shared_ptr<Clique> mirror_;
  const int rank_;
  // Guarded by the mirror's mutex.
  uint64_t next_operation_ = 0;
  std::map<uint64_t, Frame> results_;  // by operation
};

}  // namespace onebit::testing::nccl
