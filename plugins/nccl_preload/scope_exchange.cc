// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/nccl_preload/scope_exchange.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "plugins/nccl_preload/call_facts.h"
#include "plugins/nccl_preload/program_driver.h"
#include "plugins/nccl_preload/real_reductions.h"

namespace onebit::preload {
namespace {

constexpr int32_t kPending = -1;
constexpr int kMin = 3;  // of ncclRedOp_t
constexpr std::chrono::microseconds kPause{50};

}  // namespace

std::unique_ptr<ScopeExchange> ScopeExchange::Create() {
  auto* const words = static_cast<Words*>(AllocatePinned(sizeof(Words)));
  return words == nullptr ? nullptr : std::unique_ptr<ScopeExchange>(new ScopeExchange(words));
}

ScopeExchange::~ScopeExchange() { FreePinned(words_); }

Result ScopeExchange::Begin(Comm native, Stream stream, bool holds,
                            const std::function<bool()>& is_over) {
  Await(is_over);
  words_->mine = holds ? 1 : 0;
  std::atomic_ref(words_->result).store(kPending, std::memory_order_release);
  const Reduction call = {.send = &words_->mine,
                          .recv = &words_->result,
                          .facts = {.operation = Operation::kAllReduce,
                                    .reduction = kMin,
                                    .type = DataType::kInt32,
                                    .count = 1},
                          .stream = stream};
  const Result result = MakeRealReduction(call, native);
  if (result != kSuccess) words_->result = 0;
  return result;
}

bool ScopeExchange::Await(const std::function<bool()>& is_over) {
  for (;;) {
    const int32_t result = std::atomic_ref(words_->result).load(std::memory_order_acquire);
    if (result != kPending) return result != 0;
    if (is_over()) return false;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace onebit::preload
