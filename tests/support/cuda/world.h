// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// World: devices, contexts, memory, streams and events of the stand-in, guarded by one lock.
#pragma once

#include <bitset>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "tests/support/cuda/operation.h"

namespace onebit::testing::cuda {

struct Capture;
struct Context;
struct Event;
struct GraphExec;

using Lock = std::unique_lock<std::mutex>;

// A hardware queue: operations of its streams run in the order in which they were enqueued, so a
// waiting one holds up the others.
struct Queue {
  uint64_t given = 0;
  uint64_t done = 0;
  std::condition_variable turn;
};

struct Device {
  int number = 0;
  size_t memory_bytes = 0;
  size_t allocated_bytes = 0;
  unsigned primary_references = 0;
  unsigned primary_flags = 0;
  Context* primary = nullptr;
  CUresult broken = CUDA_SUCCESS;  // the error of every call after the device broke
};

struct Context {
  Device* device = nullptr;
  unsigned long long id = 0;
  bool is_alive = false;
  Stream* legacy = nullptr;
  // Queues that the streams of a priority share; empty without CUDA_STAND_IN_QUEUES.
  struct Queues {
    std::vector<std::unique_ptr<Queue>> all;
    size_t next = 0;
  };
  std::map<int, Queues> queues;
  // Kernels that are loaded; CUDA may load each at its first use.
  std::bitset<kernels::cuda::kKernelCount> loaded;
};

enum class BlockKind { kDevice, kManaged, kPinned };

struct Block {
  size_t bytes = 0;
  BlockKind kind = BlockKind::kDevice;
  Device* device = nullptr;
};

struct Event {
  Context* context = nullptr;
  Point point;
  bool has_timing = true;
  std::shared_ptr<EventTime> time;  // of the last record; null: none, or it keeps no time
  // If last recorded in a capture: its number, and the nodes that the event stands for.
  uint64_t capture = 0;
  std::vector<size_t> nodes;
};

struct World {
  std::mutex mutex;                // guards everything here and in streams and captures
  size_t queues_per_priority = 0;  // 0: every stream has its own queue
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<Context>> contexts;  // dead ones too, so that handles stay readable
  std::map<uintptr_t, Block> blocks;               // by address
  size_t pinned_bytes = 0;
  std::vector<std::unique_ptr<Stream>> streams;  // dead ones too
  std::set<const Stream*> live_streams;          // without legacy streams
  std::set<Stream*> running;                     // without those that are destroyed and done
  std::set<const Event*> live_events;
  std::vector<std::unique_ptr<GraphExec>> execs;
  std::vector<Capture*> captures;  // begun and not ended
};

// Never destroyed, because threads of streams use it until the process ends.
World& TheWorld();

// The context on top of the thread's stack; null if it is empty.
Context* CurrentContext();
// CUDA_ERROR_INVALID_CONTEXT if there is none; the device's error if it is broken.
CUresult RequireContext(Context** context);

// The block that contains `address`; null for memory that CUDA does not know. Requires the lock.
const Block* FindBlock(World& world, const void* address);
// True if `bytes` from `address` on are within one block. Requires the lock.
bool IsWithinBlock(World& world, const void* address, size_t bytes);

}  // namespace onebit::testing::cuda
