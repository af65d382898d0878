// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ranks behind a transport that damages, drops or delays one message of one call.
#include "tests/collectives/fault_run.h"

#include <random>
#include <stdexcept>

#include "tests/support/chunk_calls.h"

namespace onebit::testing {
namespace {

constexpr uint32_t kSeed = 7401;

std::vector<float> InputOf(int rank, int call, size_t count) {
  std::mt19937 random(kSeed + static_cast<uint32_t>(100 * call + rank));
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const FaultSubject& subject) {
  return out << subject.name;
}

FaultRun::FaultRun(const FaultSubject& subject, uint64_t timeout_ms)
    : subject_(subject),
      group_(kFaultRanks,
             {.timeout_ms = timeout_ms,
              .one_exchange_elements = subject.one_exchange_elements,
              .two_level_bytes = 0,
              .segment_elements = subject.segment_elements,
              .group_elements = subject.group_elements,
              .host_ranks = subject.has_two_levels ? 2u : 0u},
             &transport_.transport()) {
  for (int rank = 0; rank < kFaultRanks && subject.mode; ++rank) {
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.mode = *subject.mode;
    config.block = subject.codec == onebitCodecSign ? 64 : 320;
    config.codec = subject.codec;
    config.hops = subject.hops;
    config.levels = subject.has_two_levels ? 2 : 1;
    config.transactional = subject.is_transactional ? 1 : 0;
    config.collective = subject.collective;
    const size_t count = subject.collective == onebitCollectiveAllToAllv ? 0 : subject.count;
    compressors_.push_back(NewCompressor(group_.comm(rank), count, onebitFloat32, config));
  }
  for (const Outcome& outcome : Call()) {
    if (outcome.result != onebitSuccess) throw std::runtime_error(outcome.text);
  }
}

std::vector<Outcome> FaultRun::Call(int calls) {
  const int first_call = calls_;
  calls_ += calls;
  return group_.Call([&](int rank) {
    onebitResult_t result = onebitSuccess;
    for (int call = first_call; call < calls_ && result == onebitSuccess; ++call) {
      result = CallOnce(rank, call);
    }
    return result;
  });
}

onebitResult_t FaultRun::CallOnce(int rank, int call) {
  const onebitCollective_t collective = subject_.collective;
  std::vector<float> values =
      InputOf(rank, call, subject_.count * SendParts(collective, kFaultRanks));
  std::vector<float> received(subject_.count * kFaultRanks);
  const auto call_subject = [&] {
    return MakeCall(
        collective,
        {.send = values.data(),
         .receive = collective == onebitCollectiveAllReduce ? values.data() : received.data(),
         .count = subject_.count,
         .compressor = subject_.mode ? compressor(rank) : nullptr},
        group_.comm(rank));
  };
  if (subject_.group_calls == 0) return call_subject();
  std::vector<std::vector<float>> others(static_cast<size_t>(subject_.group_calls),
                                         std::vector<float>(40));
  onebitGroupStart();
  call_subject();
  for (auto& other : others) {
    onebitAllReduce(other.data(), other.data(), other.size(), onebitFloat32, onebitSum, nullptr,
                    group_.comm(rank), nullptr);
  }
  return onebitGroupEnd();
}

Generations GenerationsOf(const FaultSubject& subject) {
  Generations generations;
  if (!subject.mode) return generations;
  FaultRun run(subject);
  for (int call = 1;; ++call) {
    std::vector<Residuals>& of_call = generations.emplace_back();
    for (int rank = 0; rank < kFaultRanks; ++rank) of_call.push_back(run.residuals(rank));
    if (call == 3) return generations;
    run.Call();
  }
}

}  // namespace onebit::testing
