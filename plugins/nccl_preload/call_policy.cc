// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Keeps what is known of each tensor.
#include "plugins/nccl_preload/call_policy.h"

namespace onebit::preload {

void DefaultScope::Observe(uint64_t comm, const CommFacts& facts, const CallFacts& call) {
  // A barrier of PyTorch is an allreduce of one float.
  if (facts.ranks == 1 || !IsFloat(call.type) || call.count <= 1) return;
  const bool has_all_ranks = job_ranks_ == 0 || facts.ranks == job_ranks_;
  if (!has_all_ranks || (has_comm_ && comm != comm_)) is_lost_ = true;
  if (!has_comm_) comm_ = comm;
  has_comm_ = true;
}

Decision CallPolicy::Decide(const CallFacts& call, std::optional<uint64_t> tensor_id,
                            const ScopeResult& scope_result,
                            const std::optional<Compression>& asked) {
  Decision decision;
  const Compression compression = Choose(rules_, comm_, call, asked);
  if (compression.codec == Codec::kOff) return decision;
  const std::optional<Key> key = Identify(call, tensor_id, &decision);
  if (!key) {
    decision.reason = Reason::kNoCycle;
    return decision;
  }
  Tensor& tensor = FindOrBegin(*key, call, compression, &decision);
  decision.tensor = tensor.number;
  const bool is_scoped = rules_.is_default && !asked;
  const uint64_t calls_before = tensor.calls++;
  if (calls_before < compression.start) {
    decision.reason = Reason::kStart;
    if (is_scoped && !has_asked_scope_ && calls_before >= compression.start / 2) {
      has_asked_scope_ = is_scope_awaited_ = decision.asks_scope = true;
    }
    return decision;
  }
  if (is_scoped) {
    const std::optional<bool> is_in_scope = IsInScope(scope_result);
    if (!is_in_scope.value_or(false)) {
      decision.reason = is_in_scope ? Reason::kOtherComm : Reason::kStart;
      return decision;
    }
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

std::optional<bool> CallPolicy::IsInScope(const ScopeResult& scope_result) {
  if (is_scope_awaited_) {
    const std::optional<bool> result = scope_result();
    if (!result) return std::nullopt;
    is_in_scope_ = *result;
    is_scope_awaited_ = false;
  }
  return is_in_scope_;
}

std::optional<CallPolicy::Key> CallPolicy::Identify(const CallFacts& call,
                                                    std::optional<uint64_t> tensor_id,
                                                    Decision* decision) {
  if (tensor_id) return Key{.is_named = true, .number = *tensor_id};
  const std::optional<uint32_t> number = cycle_.Next(call);
  if (cycle_.generation() != generation_) {
    generation_ = cycle_.generation();
    has_asked_scope_ = false;
    // Those without a name come first.
    while (!tensors_.empty() && !tensors_.begin()->first.is_named) {
      End(tensors_.begin(), decision);
    }
  }
  if (!number) return std::nullopt;
  return Key{.is_named = false, .number = *number};
}

CallPolicy::Tensor& CallPolicy::FindOrBegin(const Key& key, const CallFacts& call,
                                            const Compression& compression, Decision* decision) {
  const auto found = tensors_.find(key);
  if (found != tensors_.end()) {
    Tensor& tensor = found->second;
    if (tensor.call == call && tensor.compression == compression) return tensor;
    End(found, decision);
  }
  const Tensor begun{.number = next_number_++, .call = call, .compression = compression};
  return tensors_.emplace(key, begun).first->second;
}

void CallPolicy::End(std::map<Key, Tensor>::iterator tensor, Decision* decision) {
  decision->ended.push_back(tensor->second.number);
  tensors_.erase(tensor);
}

}  // namespace onebit::preload
