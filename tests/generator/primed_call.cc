// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/generator/primed_call.h"

#include <cstring>

#include "perf/common/allreduce_model.h"
#include "tests/generator/levels.h"

namespace onebit::testing::generator {

using kernels::DataType;

void Prime(Model& model, const Case& c, const TensorCase& t, const Bytes& mask, const Buffers& b) {
  const auto ranks = static_cast<size_t>(c.ranks);
  const auto count = static_cast<size_t>(t.count);
  const bool is_gather = t.collective == onebitCollectiveAllGather;
  const bool is_exchange = t.collective == onebitCollectiveAllToAll;
  const bool is_mean = t.op == onebitAvg;
  const size_t elements = count * t.SendParts(ranks);
  std::vector<std::vector<float>> sums;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const std::vector<float> residual = model.Worker(rank);
    std::vector<float>& sum = sums.emplace_back(elements);
    for (size_t i = 0; i < elements; ++i) {
      float x = 0;
      std::memcpy(&x, static_cast<const std::byte*>(b.inputs[rank]) + i * sizeof(x), sizeof(x));
      const bool is_own = ranks == 1 || is_gather || (is_exchange && i / count == rank);
      if (BitAt(mask, (is_gather ? rank * count : 0) + i)) sum[i] = is_own ? x : x + residual[i];
    }
  }
  const bool has_servers = t.server != 0 && !(t.is_sparse() && Or(t.hops, 1) == 1);
  if (t.collective == onebitCollectiveAllReduce && ranks > 1 && has_servers) {
    const std::vector<float> server = model.Server();
    // Servers of sums owe means where signs travel in one level.
    const bool counts_ranks = is_mean || (t.codec == onebitCodecSign && LevelsOf(c, t) == 1);
    const std::vector<size_t> servers = ServersOf(c, t);
    for (size_t i = 0; i < elements; ++i) {
      sums[servers[i]][i] += (counts_ranks ? static_cast<float>(ranks) : 1.0f) * server[i];
    }
  }
  model::HostLayout hosts;
  if (LevelsOfPriming(c, t) == 2) hosts = model::HostLayout(HostsOf(c));
  std::vector<float> gathered;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const auto write = [&](size_t i, float value) {
      std::memcpy(static_cast<std::byte*>(b.outputs[rank]) + i * sizeof(value), &value,
                  sizeof(value));
    };
    if (is_gather) gathered.insert(gathered.end(), sums[rank].begin(), sums[rank].end());
    for (size_t from = 0; from < ranks && (is_gather || is_exchange); ++from) {
      for (size_t i = 0; i < count; ++i) {
        write(from * count + i, sums[from][(is_exchange ? rank * count : 0) + i]);
      }
    }
    const size_t begin = t.collective == onebitCollectiveReduceScatter ? rank * count : 0;
    for (size_t i = 0; i < count && t.reduces(); ++i) {
      std::vector<const void*> terms;
      for (const auto& sum : sums) terms.push_back(&sum[begin + i]);
      float result = 0;
      const auto op = is_mean ? kernels::DenseOp::kAverage : kernels::DenseOp::kSum;
      if (hosts.empty()) {
        model::DenseAllReduce(terms, 1, DataType::kF32, op, &result);
      } else {
        model::DenseAllReduceOnHosts(hosts, terms, 1, DataType::kF32, op, &result);
      }
      write(i, BitAt(mask, begin + i) ? result : 0);
    }
  }
  if (ranks == 1) return;
  model.Settle();
  if (is_gather) model.Hold(gathered);
}

}  // namespace onebit::testing::generator
