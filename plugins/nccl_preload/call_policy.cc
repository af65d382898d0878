// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Keeps what is known of each tensor.
#include "plugins/nccl_preload/call_policy.h"

#include <algorithm>

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
  if (compression.codec == kOff) return decision;
  const std::optional<Key> key = Identify(call, tensor_id, compression, &decision);
  if (!key) return decision;
  decision.may_repeat = key->identity == Identity::kShape;
  Tensor& tensor = FindOrBegin(*key, call, compression, &decision);
  decision.tensor = tensor.number;
  const bool is_scoped = rules_.is_default && !asked;
  const uint64_t calls_before = tensor.calls++;
  if (is_scoped) AskScope(*key, calls_before, compression.start, &decision);
  if (calls_before < compression.start) {
    decision.reason = Reason::kStart;
    return decision;
  }
  if (is_scoped) {
    const std::optional<bool> is_in_scope = IsInScope(*key, calls_before, scope_result);
    if (!is_in_scope.value_or(false)) {
      decision.reason = is_in_scope ? Reason::kOtherComm : Reason::kStart;
      return decision;
    }
  }
  if (!tensor.is_compressed && ended_ >= kMostEnded) {
    decision.reason = Reason::kNoRoom;
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
  tensor.is_compressed = true;
  decision.reason = Reason::kCompressed;
  decision.compression = compression;
  return decision;
}

Decision CallPolicy::DecideMessage(const CallFacts& call, int peer) {
  Decision decision;
  decision.may_repeat = true;
  decision.compression = Choose(rules_, comm_, call);
  if (decision.compression.codec == kOff) return decision;
  std::map<CallFacts, uint64_t>& shapes = message_shapes_[{peer, call.operation}];
  decision.reason = Reason::kNoRoom;
  const auto known = shapes.find(call);
  if (known == shapes.end()) {
    if (shapes.size() >= MostMessageShapes(comm_.ranks)) return decision;
    decision.tensor = shapes.size();
    shapes.emplace(call, decision.tensor);
  } else {
    decision.tensor = known->second;
  }
  decision.reason = Reason::kCompressed;
  return decision;
}

// Directions, shapes and slots of a communicator have 2^31 numbers between them (MessageId). Each
// shape has memory, and programs that split their tensors unevenly have ever new ones.
uint64_t CallPolicy::MostMessageShapes(int ranks) {
  constexpr uint64_t kMost = 256;
  const auto directions = static_cast<uint64_t>(ranks) * static_cast<uint64_t>(ranks);
  return std::min(kMost, (uint64_t{1} << 31) / (directions * kSlots));
}

void CallPolicy::AskScope(const Key& key, uint64_t calls_before, uint32_t start,
                          Decision* decision) {
  const uint32_t calls_between = start - start / 2;
  if (has_asked_scope_ || calls_before + calls_between < start) return;
  has_asked_scope_ = decision->asks_scope = true;
  asker_ = key;
  asker_due_ = calls_before + calls_between;
}

std::optional<bool> CallPolicy::IsInScope(const Key& key, uint64_t calls_before,
                                          const ScopeResult& scope_result) {
  if (asker_ == key && calls_before >= asker_due_) {
    const std::optional<bool> result = scope_result();
    if (!result) return std::nullopt;
    is_in_scope_ = *result;
    asker_.reset();
  }
  return is_in_scope_;
}

std::optional<CallPolicy::Key> CallPolicy::Identify(const CallFacts& call,
                                                    std::optional<uint64_t> tensor_id,
                                                    const Compression& compression,
                                                    Decision* decision) {
  if (tensor_id) return Key{.identity = Identity::kNamed, .number = *tensor_id};
  if (!compression.has_feedback && !IsReduction(call.operation)) {
    const auto known = shapes_.find({call, compression});
    if (known != shapes_.end()) return Key{.identity = Identity::kShape, .number = known->second};
    decision->reason = Reason::kNoRoom;
    if (shapes_.size() >= kMostEnded) return std::nullopt;
    const uint64_t number = shapes_.size();
    shapes_.emplace(std::pair(call, compression), number);
    return Key{.identity = Identity::kShape, .number = number};
  }
  const std::optional<uint32_t> number = cycle_.Next(call);
  if (cycle_.generation() != generation_) {
    generation_ = cycle_.generation();
    AskAgain();
    // Tensors of the cycle come first in the map.
    while (!tensors_.empty() && tensors_.begin()->first.identity == Identity::kCycle) {
      End(tensors_.begin(), decision);
    }
  }
  decision->reason = Reason::kNoCycle;
  if (!number) return std::nullopt;
  return Key{.identity = Identity::kCycle, .number = *number};
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
  if (tensor->second.is_compressed) ++ended_;
  if (asker_ == tensor->first) AskAgain();
  tensors_.erase(tensor);
}

}  // namespace onebit::preload
