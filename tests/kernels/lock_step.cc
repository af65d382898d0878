// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/lock_step.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/kernel_table.h"
#include "kernels/reference/fp_env.h"
#include "tests/kernels/lock_step_accesses.h"

namespace onebit::kernels::cuda {

LaunchIndex threadIdx, blockIdx, blockDim, gridDim;

namespace {

constexpr unsigned kWarpLanes = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;
constexpr size_t kStackBytes = size_t{64} << 10;
// Bounds a launch to what the tests use.
constexpr unsigned kMaxFibers = kWarpLanes * kWarpsPerCta * 64;

enum class State { kReady, kWaits, kEnded };

struct Lane {
  LaneId id;
  ucontext_t start;  // only enters the fiber: a switch by ucontext would be two system calls
  jmp_buf at;
  bool is_entered = false;
  State state = State::kEnded;
  Collective collective = Collective::kSync;
  unsigned mask = 0;
  unsigned operand = 0;
  uint64_t value = 0;
};

class Scheduler {
 public:
  Scheduler()
      : stacks_(
            static_cast<std::byte*>(mmap(nullptr, kMaxFibers * kStackBytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    if (stacks_ == MAP_FAILED) throw std::runtime_error("no memory for the stacks of lanes");
  }

  void Run(unsigned ctas, uint32_t seed, std::span<const std::byte> constants,
           const std::function<void()>& body);

  uint64_t Meet(Collective collective, unsigned mask, unsigned operand, uint64_t value) {
    Lane& lane = *lane_;
    lane.state = State::kWaits;
    lane.collective = collective;
    lane.mask = mask;
    lane.operand = operand;
    lane.value = value;
    Leave();
    return lane.value;
  }

  // Lets other warps run.
  void GiveWay() {
    if (lane_ != nullptr) Leave();
  }

  void Access(const void* at, size_t bytes, bool is_write, size_t alignment) {
    if (lane_ == nullptr) return;
    const auto address = reinterpret_cast<uintptr_t>(at);
    if (address - reinterpret_cast<uintptr_t>(stacks_) < kMaxFibers * kStackBytes) return;
    if (address - reinterpret_cast<uintptr_t>(constants_.data()) < constants_.size()) return;
    if (address % alignment != 0) {
      Break(TextOf(lane_->id) + " accesses " + std::to_string(bytes) +
            " bytes at an address that " + std::to_string(alignment) + " does not divide");
    }
    std::string conflict;
    if (!accesses_.Add(lane_->id, periods_[lane_->id.warp], is_write, address, bytes, &conflict)) {
      Break(conflict);
    }
  }

 private:
  // Enters or continues the fiber of `lane` until it leaves.
  void Resume(Lane* lane);
  void Leave() {
    if (_setjmp(lane_->at) == 0) _longjmp(scheduler_, 1);
  }
  [[noreturn]] static void Fiber();
  void BecomeFiber(Lane* lane, unsigned index);

  // Runs each lane of a warp that can, then completes what they wait for. False if they have ended.
  bool RunWarp(unsigned warp);
  void CheckMeeting(unsigned warp);
  void Complete(unsigned warp);

  // Keeps the first text.
  void Break(const std::string& text) {
    if (broken_.empty()) broken_ = text;
  }

  std::byte* const stacks_;
  std::deque<Lane> lanes_;
  std::vector<uint32_t> periods_;  // of each warp
  std::span<const std::byte> constants_;
  const std::function<void()>* body_ = nullptr;
  Lane* lane_ = nullptr;  // the running one
  jmp_buf scheduler_;
  std::mt19937 random_;
  AccessRecord accesses_;
  std::string broken_;
};

Scheduler& TheScheduler() {
  static Scheduler scheduler;
  return scheduler;
}

void Scheduler::Fiber() {
  for (;;) {
    Scheduler& scheduler = TheScheduler();
    (*scheduler.body_)();
    scheduler.lane_->state = State::kEnded;
    scheduler.Leave();
  }
}

void Scheduler::BecomeFiber(Lane* lane, unsigned index) {
  getcontext(&lane->start);
  lane->start.uc_stack.ss_sp = stacks_ + index * kStackBytes;
  lane->start.uc_stack.ss_size = kStackBytes;
  lane->start.uc_link = nullptr;
  makecontext(&lane->start, &Scheduler::Fiber, 0);
  lane->is_entered = false;
}

void Scheduler::Resume(Lane* lane) {
  lane_ = lane;
  threadIdx.x = lane->id.warp % kWarpsPerCta * kWarpLanes + lane->id.lane;
  blockIdx.x = lane->id.warp / kWarpsPerCta;
  if (_setjmp(scheduler_) == 0) {
    if (lane->is_entered) _longjmp(lane->at, 1);
    lane->is_entered = true;
    setcontext(&lane->start);
  }
  lane_ = nullptr;
}

const char* NameOf(const Lane& lane) {
  if (lane.state == State::kEnded) return "has ended";
  switch (lane.collective) {
    case Collective::kShuffle:
      return "is at a shuffle";
    case Collective::kShuffleDown:
      return "is at a shuffle down";
    case Collective::kBallot:
      return "is at a ballot";
    case Collective::kSync:
      return "is at __syncwarp";
  }
  return "";
}

void Scheduler::CheckMeeting(unsigned warp) {
  const Lane& first = lanes_[warp * kWarpLanes];
  for (unsigned l = 0; l < kWarpLanes; ++l) {
    const Lane& lane = lanes_[warp * kWarpLanes + l];
    if (lane.state == State::kWaits && lane.mask != kAllLanes) {
      Break(TextOf(lane.id) + " " + NameOf(lane) + " that leaves out lanes");
    }
    if (lane.state != first.state ||
        (lane.state == State::kWaits && lane.collective != first.collective)) {
      Break("divergence: " + TextOf(first.id) + " " + NameOf(first) + ", " + TextOf(lane.id) + " " +
            NameOf(lane));
    }
  }
}

void Scheduler::Complete(unsigned warp) {
  uint64_t values[kWarpLanes];
  uint64_t ballot = 0;
  for (unsigned l = 0; l < kWarpLanes; ++l) {
    values[l] = lanes_[warp * kWarpLanes + l].value;
    ballot |= (values[l] & 1) << l;
  }
  for (unsigned l = 0; l < kWarpLanes; ++l) {
    Lane& lane = lanes_[warp * kWarpLanes + l];
    lane.state = State::kReady;
    switch (lane.collective) {
      case Collective::kShuffle:
        lane.value = values[lane.operand % kWarpLanes];
        break;
      case Collective::kShuffleDown:
        // Beyond the last lane the value is unspecified: one that nobody expects.
        lane.value = l + lane.operand < kWarpLanes ? values[l + lane.operand] : ~values[l];
        break;
      case Collective::kBallot:
        lane.value = ballot;
        break;
      case Collective::kSync:
        periods_[warp] = accesses_.NextPeriod();
        break;
    }
  }
}

bool Scheduler::RunWarp(unsigned warp) {
  const unsigned start = random_() % kWarpLanes;
  const unsigned step = 2 * (random_() % (kWarpLanes / 2)) + 1;
  bool has_ready = false;
  for (unsigned n = 0; n < kWarpLanes; ++n) {
    Lane& lane = lanes_[warp * kWarpLanes + (start + n * step) % kWarpLanes];
    if (lane.state != State::kReady) continue;
    Resume(&lane);
    has_ready = has_ready || lane.state == State::kReady;
  }
  if (has_ready) return true;
  CheckMeeting(warp);
  if (!broken_.empty() || lanes_[warp * kWarpLanes].state == State::kEnded) return false;
  Complete(warp);
  return true;
}

void Scheduler::Run(unsigned ctas, uint32_t seed, std::span<const std::byte> constants,
                    const std::function<void()>& body) {
  const unsigned warps = ctas * kWarpsPerCta;
  const unsigned count = warps * kWarpLanes;
  if (count > kMaxFibers) throw std::runtime_error("too many CTAs for a launch in lock step");
  random_.seed(seed);
  accesses_.BeginLaunch();
  broken_.clear();
  constants_ = constants;
  body_ = &body;
  blockDim.x = kWarpsPerCta * kWarpLanes;
  gridDim.x = ctas;
  while (lanes_.size() < count) {
    const auto index = static_cast<unsigned>(lanes_.size());
    lanes_.emplace_back().id = {index / kWarpLanes, index % kWarpLanes};
    BecomeFiber(&lanes_.back(), index);
  }
  periods_.resize(warps);
  std::vector<unsigned> live;
  for (unsigned warp = 0; warp < warps; ++warp) {
    periods_[warp] = accesses_.NextPeriod();
    live.push_back(warp);
  }
  for (unsigned i = 0; i < count; ++i) lanes_[i].state = State::kReady;
  while (!live.empty() && broken_.empty()) {
    const size_t turn = random_() % live.size();
    if (RunWarp(live[turn])) continue;
    live[turn] = live.back();
    live.pop_back();
  }
  if (broken_.empty()) return;
  // Lanes in the middle of a kernel never continue.
  for (unsigned i = 0; i < count; ++i) BecomeFiber(&lanes_[i], i);
  throw std::runtime_error("in lock step, seed " + std::to_string(seed) + ": " + broken_);
}

}  // namespace

void RunInLockStep(unsigned ctas, uint32_t seed, std::span<const std::byte> constants,
                   const std::function<void()>& lane) {
  reference::InDefaultFpEnvironment([&] { TheScheduler().Run(ctas, seed, constants, lane); });
}

uint64_t MeetLanes(Collective collective, unsigned mask, unsigned operand, uint64_t value) {
  return TheScheduler().Meet(collective, mask, operand, value);
}

void __threadfence() { TheScheduler().GiveWay(); }
void __threadfence_system() { TheScheduler().GiveWay(); }

uint32_t atomicOr(uint32_t* word, uint32_t bits) {
  TheScheduler().GiveWay();
  return std::exchange(*word, *word | bits);
}
uint32_t atomicAdd(uint32_t* word, uint32_t value) {
  TheScheduler().GiveWay();
  return std::exchange(*word, *word + value);
}
unsigned long long atomicAdd(unsigned long long* word, unsigned long long value) {
  TheScheduler().GiveWay();
  return std::exchange(*word, *word + value);
}
uint32_t atomicCAS(uint32_t* word, uint32_t expected, uint32_t desired) {
  TheScheduler().GiveWay();
  return std::exchange(*word, *word == expected ? desired : *word);
}

}  // namespace onebit::kernels::cuda

// The compiler calls these for each access of a file with instrumentation. It expects
// ThreadSanitizer to define them.
extern "C" {

#define ONEBIT_ACCESS(size)                                              \
  void __tsan_read##size(void* at) {                                     \
    onebit::kernels::cuda::TheScheduler().Access(at, size, false, size); \
  }                                                                      \
  void __tsan_write##size(void* at) {                                    \
    onebit::kernels::cuda::TheScheduler().Access(at, size, true, size);  \
  }                                                                      \
  void __tsan_unaligned_read##size(void* at) {                           \
    onebit::kernels::cuda::TheScheduler().Access(at, size, false, 1);    \
  }                                                                      \
  void __tsan_unaligned_write##size(void* at) {                          \
    onebit::kernels::cuda::TheScheduler().Access(at, size, true, 1);     \
  }
ONEBIT_ACCESS(1)
ONEBIT_ACCESS(2)
ONEBIT_ACCESS(4)
ONEBIT_ACCESS(8)
ONEBIT_ACCESS(16)
#undef ONEBIT_ACCESS

void __tsan_read_range(void* at, size_t bytes) {
  onebit::kernels::cuda::TheScheduler().Access(at, bytes, false, 1);
}
void __tsan_write_range(void* at, size_t bytes) {
  onebit::kernels::cuda::TheScheduler().Access(at, bytes, true, 1);
}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}

}  // extern "C"
