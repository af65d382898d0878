// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Keeps what is known of each tensor.
#include "plugins/nccl_preload/call_policy.h"

namespace onebit::preload {
namespace {

// Tensors that their caller has named have numbers of their own.
constexpr uint64_t kNamed = uint64_t{1} << 63;

}  // namespace

bool DefaultScope::Includes(uint64_t comm, const CommFacts& facts, const CallFacts& call) {
  // A barrier of PyTorch is an allreduce of one float.
  if (facts.ranks > 1 && IsFloat(call.type) && call.count > 1) {
    const bool has_all_ranks = job_ranks_ == 0 || facts.ranks == job_ranks_;
    if (!has_all_ranks || (has_comm_ && comm != comm_)) is_lost_ = true;
    if (!has_comm_) comm_ = comm;
    has_comm_ = true;
  }
  return has_comm_ && comm == comm_ && !is_lost_;
}

Decision CallPolicy::Decide(const CallFacts& call, std::optional<uint64_t> tensor_id,
                            bool is_allowed) {
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
  if (!is_allowed) {
    decision.reason = Reason::kOtherComm;
    return decision;
  }
  if (tensor.calls++ < compression.start) {
    decision.reason = Reason::kStart;
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

std::optional<uint64_t> CallPolicy::Identify(const CallFacts& call,
                                             std::optional<uint64_t> tensor_id,
                                             Decision* decision) {
  if (tensor_id) return *tensor_id | kNamed;
  const std::optional<uint32_t> number = cycle_.Next(call);
  if (cycle_.generation() != generation_) {
    generation_ = cycle_.generation();
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
