// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/nccl_preload/scope_exchange.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "plugins/nccl_preload/call_facts.h"
#include "plugins/nccl_preload/program_driver.h"
#include "plugins/nccl_preload/real_calls.h"

namespace onebit::preload {
namespace {

constexpr int32_t kPending = -1;
constexpr int kMin = 3;  // of ncclRedOp_t
constexpr std::chrono::microseconds kPause{50};

}  // namespace

std::unique_ptr<ScopeExchange> ScopeExchange::Create() {
  auto* const slots = static_cast<Words*>(AllocatePinned(kSlots * sizeof(Words)));
  return slots == nullptr ? nullptr : std::unique_ptr<ScopeExchange>(new ScopeExchange(slots));
}

ScopeExchange::~ScopeExchange() {
  for (size_t i = 0; i < kSlots; ++i) {
    // The device may still write it.
    if (std::atomic_ref(slots_[i].result).load() == kPending) return;
  }
  FreePinned(slots_);
}

Result ScopeExchange::Begin(Comm native, Stream stream, bool holds,
                            const std::function<bool()>& is_over) {
  ++begun_;
  if (!Await(is_over)) return kRemoteError;
  Words& words = latest();
  words.mine = holds ? 1 : 0;
  std::atomic_ref(words.result).store(kPending, std::memory_order_release);
  const DataCall call = {.send = &words.mine,
                         .recv = &words.result,
                         .facts = {.operation = Operation::kAllReduce,
                                   .reduction = kMin,
                                   .type = DataType::kInt32,
                                   .count = 1},
                         .stream = stream};
  return MakeRealCall(call, native);
}

std::optional<bool> ScopeExchange::Await(const std::function<bool()>& is_over) const {
  for (;;) {
    const int32_t result = std::atomic_ref(latest().result).load(std::memory_order_acquire);
    if (result != kPending) return result != 0;
    if (is_over()) return std::nullopt;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace onebit::preload
