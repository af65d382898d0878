// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/generator/calls.h"

#include "tests/generator/expected.h"

namespace onebit::testing::generator {

void MakeCalls(const Case& c, std::span<const std::unique_ptr<RankActions>> ranks) {
  const int tensors = static_cast<int>(c.tensors.size());
  for (const auto& rank : ranks) {
    rank->Begin();
    for (int tensor = 0; tensor < tensors; ++tensor) rank->Create(tensor);
  }
  std::vector<int> mask_versions(c.tensors.size());
  for (int round = 0; round < static_cast<int>(c.events.size()); ++round) {
    const Event event = c.events[static_cast<size_t>(round)];
    for (int tensor = 0; tensor < tensors; ++tensor) {
      const auto at = static_cast<size_t>(tensor);
      const bool happens = Happens(event, c.tensors[at], static_cast<size_t>(c.ranks));
      if (happens && event == Event::kMask) ++mask_versions[at];
      for (const auto& rank : ranks) {
        if (happens && event != Event::kNan && event != Event::kPrime) {
          rank->Apply(event, tensor, round, mask_versions[at]);
        }
        rank->Fill(tensor, round);
        if (happens && event == Event::kNan) rank->PutNan(tensor, round, mask_versions[at]);
      }
    }
    const auto is_primed = [&](int tensor) {
      return event == Event::kPrime &&
             Happens(event, c.tensors[static_cast<size_t>(tensor)], static_cast<size_t>(c.ranks));
    };
    for (int tensor = 0; tensor < tensors; ++tensor) {
      if (is_primed(tensor)) ranks[0]->Prime(tensor);  // in no group, so each thread has one rank
    }
    if (c.grouped != 0) ranks[0]->GroupStart();
    for (const auto& rank : ranks) {
      for (int tensor = 0; tensor < tensors; ++tensor) {
        if (!is_primed(tensor)) rank->Call(tensor, round);
      }
    }
    if (c.grouped != 0) ranks[0]->GroupEnd();
    for (const auto& rank : ranks) {
      if (c.streamed != 0) rank->Synchronize();
      for (int tensor = 0; tensor < tensors; ++tensor) rank->Check(tensor, round);
    }
  }
  for (const auto& rank : ranks) rank->End();
}

onebitCompressorConfig_t ConfigOf(const Case& c, int tensor, int id) {
  const TensorCase& t = c.tensors[static_cast<size_t>(tensor)];
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.mode = static_cast<int32_t>(t.mode);
  config.collective = static_cast<int32_t>(t.collective);
  config.codec = static_cast<int32_t>(t.codec);
  config.scaleRule = static_cast<int32_t>(t.rule);
  config.block = static_cast<int32_t>(t.block);
  config.residualType = static_cast<int32_t>(t.residual);
  config.transactional = static_cast<int32_t>(t.transactional);
  config.chunkAlignment = static_cast<int32_t>(t.alignment);
  config.serverResidual = static_cast<int32_t>(t.server);
  config.levels = static_cast<int32_t>(t.levels);
  config.tensorId = 100 * tensor + id;
  config.seed = TensorSeed(c, tensor);
  config.k = static_cast<int32_t>(t.k);
  config.values = static_cast<int32_t>(t.values);
  config.hops = static_cast<int32_t>(t.hops);
  if (t.decay != kDefault) config.efDecay = static_cast<float>(t.decay) / 100;
  return config;
}

}  // namespace onebit::testing::generator
