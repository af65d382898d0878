// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Comm: the communicator behind a handle, and the rules of its use.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/nccl/clique.h"
#include "tests/support/nccl/nccl_stand_in.h"

struct CUctx_st;

namespace onebit::testing::nccl {
class RemoteClique;
}

// Functions are named pncclX, with ncclX as a weak alias, as in NCCL.
#define ONEBIT_TEST_NCCL_FUNCTION(result, name, ...)                             \
  extern "C" __attribute__((visibility("default"))) result p##name(__VA_ARGS__); \
  extern "C" __attribute__((visibility("default"), weak, alias("p" #name)))      \
  result name(__VA_ARGS__);                                                      \
  result p##name(__VA_ARGS__)

namespace onebit::testing::nccl {

struct Comm {
  std::shared_ptr<Clique> clique;
  std::shared_ptr<RemoteClique> remote;  // null if the clique is in this process
  int rank = 0;
  int device = 0;
  CUctx_st* context = nullptr;
  bool is_blocking = true;
  ncclUniqueId id{};                  // it was made with
  std::atomic<uint64_t> children{0};  // communicators made from it, with or without this rank
  std::atomic<bool> is_in_call{false};
  std::atomic<bool> has_captured{false};  // a graph contains calls of it
  std::atomic<bool> is_revoked{false};

  // For non-blocking communicators.
  std::mutex mutex;
  std::thread launcher;                   // guarded by mutex
  std::atomic<bool> is_launching{false};  // release: the launcher's last act
  std::atomic<bool> is_finalizing{false};

  ~Comm();
  Member& member() { return clique->members[static_cast<size_t>(rank)]; }
  void JoinLauncher();
};

// The use of a handle by a call. Counts misuse.
class Use {
 public:
  enum class Kind { kCall, kEnd };  // an end is allowed while another thread is in a call
  Use(ncclComm_t handle, Kind kind = Kind::kCall);
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  explicit operator bool() const { return comm_ != nullptr; }
  Comm* operator->() const { return comm_.get(); }
  const std::shared_ptr<Comm>& shared() const { return comm_; }

 private:
  std::shared_ptr<Comm> comm_;
  bool has_call_ = false;
};

ncclComm_t Register(std::shared_ptr<Comm> comm);
void Unregister(ncclComm_t handle);
std::vector<ncclComm_t> Handles();

// True if this call of `function` must fail.
bool IsToFail(const char* function, ncclResult_t* result);

// Results of onebitTestNcclGetCounts.
struct Counters {
  std::atomic<uint64_t> created{0};
  std::atomic<uint64_t> destroyed{0};
  std::atomic<uint64_t> finalized{0};
  std::atomic<uint64_t> aborted{0};
  std::atomic<uint64_t> revoked{0};
  std::atomic<uint64_t> sends{0};
  std::atomic<uint64_t> all_reduces{0};
  std::atomic<uint64_t> all_to_alls{0};
  std::atomic<uint64_t> configured{0};
  std::atomic<uint64_t> after_end{0};
  std::atomic<uint64_t> at_a_time{0};
  std::atomic<uint64_t> freed_in_call{0};
  std::atomic<uint64_t> freed_in_graph{0};
  std::atomic<uint64_t> wire_bytes{0};  // result of onebitTestNcclWireBytes
};
extern Counters counters;

}  // namespace onebit::testing::nccl
