// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Keeps what is known of each tensor.
#include "plugins/nccl_preload/call_policy.h"

namespace onebit::preload {
namespace {

// Tensors that their caller has named have numbers of their own.
constexpr uint64_t kNamed = uint64_t{1} << 63;

}  // namespace

void DefaultScope::Observe(uint64_t comm, const CommFacts& facts, const CallFacts& call) {
  // A barrier of PyTorch is an allreduce of one float.
  if (facts.ranks == 1 || !IsFloat(call.type) || call.count <= 1) return;
  const bool has_all_ranks = job_ranks_ == 0 || facts.ranks == job_ranks_;
  if (!has_all_ranks || (has_comm_ && comm != comm_)) is_lost_ = true;
  if (!has_comm_) comm_ = comm;
  has_comm_ = true;
}

Decision CallPolicy::Decide(const CallFacts& call, std::optional<uint64_t> tensor_id,
                            const ScopeResult& scope_result) {
  Decision decision;
  const Compression compression = Choose(rules_, comm_, call);
  if (compression.codec == Codec::kOff) return decision;
  const std::optional<uint64_t> number = Identify(call, tensor_id, &decision);
  if (!number) {
    decision.reason = Reason::kNoCycle;
    return decision;
  }
  decision.tensor = *number;
  auto [found, is_new] = tensors_.try_emplace(*number, Tensor{.call = call});
  if (!is_new && !(found->second.call == call)) {
    // A named tensor has changed.
    End(*number, &decision);
    found = tensors_.try_emplace(*number, Tensor{.call = call}).first;
  }
  Tensor& tensor = found->second;
  const uint64_t calls_before = tensor.calls++;
  if (calls_before < compression.start) {
    decision.reason = Reason::kStart;
    if (rules_.is_default && !has_asked_scope_ && calls_before >= compression.start / 2) {
      has_asked_scope_ = is_scope_awaited_ = decision.asks_scope = true;
    }
    return decision;
  }
  if (rules_.is_default && !IsInScope(scope_result)) {
    decision.reason = Reason::kOtherComm;
    return decision;
  }
  if (compression.has_feedback && !tensor.has_residual) {
    const uint64_t count = TensorBytes(comm_, call) / BytesOf(call.type);
    if (count > most_elements_ - elements_) {
      decision.reason = Reason::kNoRoom;
      return decision;
    }
    tensor.has_residual = true;
    elements_ += count;
  }
  decision.reason = Reason::kCompressed;
  decision.compression = compression;
  return decision;
}

bool CallPolicy::IsInScope(const ScopeResult& scope_result) {
  if (is_scope_awaited_) {
    is_in_scope_ = scope_result();
    is_scope_awaited_ = false;
  }
  return is_in_scope_.value_or(false);
}

std::optional<uint64_t> CallPolicy::Identify(const CallFacts& call,
                                             std::optional<uint64_t> tensor_id,
                                             Decision* decision) {
  if (tensor_id) return *tensor_id | kNamed;
  const std::optional<uint32_t> number = cycle_.Next(call);
  if (cycle_.generation() != generation_) {
    generation_ = cycle_.generation();
    has_asked_scope_ = false;
    while (!tensors_.empty() && (tensors_.begin()->first & kNamed) == 0) {
      End(tensors_.begin()->first, decision);
    }
  }
  return number;
}

void CallPolicy::End(uint64_t tensor, Decision* decision) {
  decision->ended.push_back(tensor);
  tensors_.erase(tensor);
}

}  // namespace onebit::preload
