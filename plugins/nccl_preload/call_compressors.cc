// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/nccl_preload/call_compressors.h"

#include <utility>

namespace onebit::preload {
namespace {

int32_t CollectiveOf(Operation operation) {
  switch (operation) {
    case Operation::kReduceScatter:
      return onebitCollectiveReduceScatter;
    case Operation::kAllGather:
      return onebitCollectiveAllGather;
    case Operation::kAllToAll:
      return onebitCollectiveAllToAll;
    case Operation::kSend:
    case Operation::kRecv:
      return onebitCollectiveSendRecv;
    default:
      return onebitCollectiveAllReduce;
  }
}

// Elements of this rank's input, whose residual is in the unit of a gradient. Those of an
// all-gather are parameters.
uint64_t ResidualElements(const CallFacts& facts, int ranks) {
  switch (facts.operation) {
    case Operation::kReduceScatter:
    case Operation::kAllToAll:
      return facts.count * static_cast<uint64_t>(ranks);
    case Operation::kAllGather:
      return 0;
    default:
      return facts.count;
  }
}

}  // namespace

onebitResult_t CallCompressors::Find(onebitComm_t comm, const DataCall& call,
                                     const Decision& decision, onebitCompressor_t* found) {
  if (IsPair(call.facts.operation)) {
    return FindForMessage(comm, call, decision, found);
  }
  const Key key{decision.tensor, decision.may_repeat ? uses_[decision.tensor]++ : 0};
  auto entry = by_tensor_.find(key);
  if (entry == by_tensor_.end()) {
    Pointer made(nullptr, onebit_.compressor_destroy);
    const onebitResult_t result = Create(comm, call.facts, decision.compression, next_id_, &made);
    if (result != onebitSuccess) return result;
    ++next_id_;
    const uint64_t elements =
        decision.compression.has_feedback ? ResidualElements(call.facts, ranks_) : 0;
    entry = by_tensor_.emplace(key, Entry{std::move(made), elements}).first;
  }
  *found = entry->second.compressor.get();
  return onebitSuccess;
}

onebitResult_t CallCompressors::FindForMessage(onebitComm_t comm, const DataCall& call,
                                               const Decision& decision,
                                               onebitCompressor_t* found) {
  const bool is_send = call.facts.operation == Operation::kSend;
  const Direction direction = is_send ? Direction(rank_, call.peer) : Direction(call.peer, rank_);
  Messages& messages = messages_[{direction, decision.tensor}];
  const uint32_t slot = messages.next_slot;
  messages.next_slot = (slot + 1) % kSlots;
  auto known = messages.by_slot.find(slot);
  if (known == messages.by_slot.end()) {
    Pointer made(nullptr, onebit_.compressor_destroy);
    const onebitResult_t result = Create(comm, call.facts, decision.compression,
                                         MessageId(direction, decision.tensor, slot), &made);
    if (result != onebitSuccess) return result;
    known = messages.by_slot.emplace(slot, std::move(made)).first;
  }
  *found = known->second.get();
  return onebitSuccess;
}

// Messages have the tensor numbers from 2^31 on, so that they never meet those of collectives.
int64_t CallCompressors::MessageId(const Direction& direction, uint64_t shape,
                                   uint32_t slot) const {
  const auto ranks = static_cast<uint64_t>(ranks_);
  const uint64_t number =
      static_cast<uint64_t>(direction.first) * ranks + static_cast<uint64_t>(direction.second);
  return static_cast<int64_t>((uint64_t{1} << 31) + (shape * ranks * ranks + number) * kSlots +
                              slot);
}

onebitResult_t CallCompressors::Create(onebitComm_t comm, const CallFacts& facts,
                                       const Compression& compression, int64_t tensor_id,
                                       Pointer* made) const {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.mode = compression.has_feedback ? onebitModeEf : onebitModePlain;
  config.codec = compression.codec;
  if (compression.block > 0) config.block = static_cast<int32_t>(compression.block);
  if (compression.has_one_level) config.levels = 1;
  config.collective = CollectiveOf(facts.operation);
  config.memory = onebitMemoryDevice;
  config.tensorId = tensor_id;
  onebitCompressor_t created = nullptr;
  const onebitResult_t result = onebit_.compressor_create(
      &created, comm, facts.count, static_cast<onebitDataType_t>(facts.type), &config);
  made->reset(created);
  return result;
}

void CallCompressors::End(uint64_t tensor) {
  auto each = by_tensor_.lower_bound({tensor, 0});
  while (each != by_tensor_.end() && each->first.first == tensor) {
    ended_.push_back(std::move(each->second.compressor));
    each = by_tensor_.erase(each);
  }
}

Residuals CallCompressors::ReadResiduals() const {
  Residuals sum;
  for (const auto& [key, entry] : by_tensor_) {
    if (entry.residual_elements == 0) continue;
    double norm = 0;
    if (onebit_.compressor_residual_norm(entry.compressor.get(), &norm) != onebitSuccess) continue;
    sum += {.sum_of_squares = norm * norm, .elements = entry.residual_elements};
  }
  return sum;
}

}  // namespace onebit::preload
