// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Random cases of compressed allreduce, and the model's results for them.
#include "tests/collectives/allreduce_case.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "codec/message_header.h"
#include "perf/common/model_pieces.h"
#include "tests/support/residuals.h"

namespace onebit::testing {
namespace {

using kernels::DataType;
using kernels::ScaleRule;

// The chunks from `first` to `last` of a residual that covers all.
std::vector<float> ChunksOf(const AllReduceCase& c, const std::vector<float>& residual,
                            size_t first, size_t last) {
  const size_t chunks = c.model.hosts.empty() ? c.model.ranks : c.model.hosts.chunks();
  const auto range_of = [&](size_t chunk) {
    return model::ChunkOf(c.model.count, chunks, c.model.chunk_alignment, chunk);
  };
  return {residual.begin() + static_cast<std::ptrdiff_t>(range_of(first).begin),
          residual.begin() + static_cast<std::ptrdiff_t>(range_of(last).end)};
}

// The residuals of a rank, by the model.
struct RankResiduals {
  std::vector<float> worker;
  std::vector<float> server;
};

RankResiduals ResidualsOnHosts(const AllReduceCase& c, const ModelRun& run, size_t rank) {
  const model::HostLayout& hosts = c.model.hosts;
  for (size_t host = 0; host < hosts.hosts(); ++host) {
    for (size_t rail = 0; rail < hosts.rails(); ++rail) {
      if (hosts.ranks_on[host][rail] != rank) continue;
      const size_t own = hosts.ChunkOf(rail, host);
      return {ChunksOf(c, run.worker_residuals[host], hosts.ChunkOf(rail, 0),
                       hosts.ChunkOf(rail, hosts.hosts() - 1)),
              ChunksOf(c, run.server_residual, own, own)};
    }
  }
  return {};  // a rank without a rail
}

RankResiduals ResidualsOf(const AllReduceCase& c, const ModelRun& run, size_t rank,
                          bool is_one_exchange) {
  if (!c.model.hosts.empty()) return ResidualsOnHosts(c, run, rank);
  const bool has_all_chunks = is_one_exchange || c.model.ranks == 1;
  return {run.worker_residuals[rank],
          has_all_chunks ? run.server_residual : ChunksOf(c, run.server_residual, rank, rank)};
}

void ExpectOutput(const Tensor& expected, const Tensor& actual, size_t call) {
  EXPECT_TRUE(actual.HasIntactGuards()) << "call " << call;
  if (actual.HasBytesOf(expected)) return;
  size_t i = 0;
  while (i < expected.count() && expected.Get(i) == actual.Get(i)) ++i;
  ADD_FAILURE() << "call " << call << ": output differs from the model, first at " << i << ": "
                << actual.Get(i) << " instead of " << expected.Get(i);
}

void RunRank(onebitComm_t comm, size_t rank, const AllReduceCase& c, const ModelRun& run) {
  const onebitCompressorConfig_t config = c.config();
  const UniqueCompressor compressor = NewCompressor(comm, c.model.count, ApiType(c.type()), config);
  for (size_t number = 0; number < run.calls.size(); ++number) {
    const ModelRun::Call& call = run.calls[number];
    Tensor output(c.model.count, c.type(), c.offset_elements);
    Tensor input(c.model.count, c.type(), c.offset_elements);
    Tensor& sent = c.is_in_place ? output : input;
    sent.CopyFrom(call.inputs[rank]);
    ASSERT_EQ(onebitAllReduce(sent.data(), output.data(), c.model.count, ApiType(c.type()), c.op(),
                              compressor.get(), comm, nullptr),
              onebitSuccess)
        << onebitGetLastError(nullptr);
    ExpectOutput(call.output, output, number);
    if (!c.is_in_place) {
      EXPECT_TRUE(input.HasBytesOf(call.inputs[rank])) << "input was changed";
    }
  }
  const bool is_one_exchange = StatsOf(compressor.get()).exchanges == 1;
  const RankResiduals expected = ResidualsOf(c, run, rank, is_one_exchange);
  EXPECT_EQ(WorkerResidualOf(compressor.get()), expected.worker);
  if (c.model.has_feedback && c.model.has_server_residual) {
    EXPECT_EQ(ServerResidualOf(compressor.get()), expected.server);
  }
}

}  // namespace

onebitCompressorConfig_t AllReduceCase::config() const {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.mode = model.has_feedback ? onebitModeEf : onebitModePlain;
  config.scaleRule = model.rule == ScaleRule::kL2 ? onebitScaleL2 : onebitScaleL1;
  config.block = static_cast<int32_t>(model.block);
  config.residualType = ApiType(model.residual_type);
  config.transactional = model.is_transactional ? 1 : 0;
  config.chunkAlignment = static_cast<int32_t>(model.chunk_alignment);
  config.serverResidual = model.has_server_residual ? 1 : 0;
  config.mask = model.mask.empty() ? nullptr : model.mask.data();
  config.cuts = model.cuts.data();
  config.cutCount = model.cuts.size();
  config.levels = model.hosts.empty() ? 1 : 2;
  return config;
}

std::ostream& operator<<(std::ostream& out, const AllReduceCase& c) {
  const auto& model = c.model;
  return out << model.ranks << " ranks, " << model.count << " " << NameOf(model.type) << ", "
             << (model.is_sum ? "sum" : "avg") << ", " << (model.has_feedback ? "ef" : "sign")
             << (model.rule == ScaleRule::kL2 ? " l2" : " l1") << ", block " << model.block
             << ", alignment " << model.chunk_alignment << ", residual "
             << NameOf(model.residual_type) << (model.has_server_residual ? "" : ", worker only")
             << (model.is_transactional ? "" : ", not transactional")
             << (model.mask.empty() ? "" : ", masked") << ", " << model.cuts.size() << " cuts"
             << (c.is_in_place ? ", in place" : "") << ", offset " << c.offset_elements;
}

model::HostLayout LayoutOf(const HostMap& hosts) {
  std::vector<uint32_t> host_of_rank;
  for (uint32_t rank = 0; rank < hosts.ranks(); ++rank) host_of_rank.push_back(hosts.HostOf(rank));
  return model::HostLayout(host_of_rank);
}

AllReduceCase RandomCase(size_t ranks, size_t count, std::mt19937& random) {
  const auto one_of = [&](auto... choices) {
    const std::array values{choices...};
    return values[random() % values.size()];
  };
  AllReduceCase c;
  c.model.ranks = ranks;
  c.model.count = count;
  c.model.type = one_of(DataType::kF32, DataType::kF16, DataType::kBf16);
  c.model.is_sum = one_of(false, true);
  c.model.has_feedback = one_of(false, true, true);
  c.model.rule = one_of(ScaleRule::kL1, ScaleRule::kL2);
  c.model.block = one_of(0u, 64u, 4096u);
  c.model.chunk_alignment = one_of(8u, 64u, 72u);
  c.model.has_server_residual = one_of(false, true, true);
  c.model.residual_type = one_of(DataType::kF32, DataType::kF32, DataType::kBf16);
  c.model.is_transactional = one_of(false, true, true);
  if (one_of(false, false, true)) {
    c.model.mask.resize(kernels::BitBytes(count) + 1);  // not empty without elements, either
    for (uint8_t& byte : c.model.mask) byte = static_cast<uint8_t>(random());
  }
  if (c.model.block != 0 && count > 1 && one_of(false, true)) {
    std::set<size_t> cuts;
    const size_t wished = one_of(1u, 5u, 30u);
    for (size_t i = 0; i < wished; ++i) cuts.insert(1 + random() % (count - 1));
    c.model.cuts.assign(cuts.begin(), cuts.end());
  }
  c.is_in_place = one_of(false, true);
  c.offset_elements = one_of(0u, 1u, 3u);
  return c;
}

ModelRun RunModel(const AllReduceCase& c, size_t calls, std::mt19937& random) {
  model::AllReduceModel model(c.model);
  ModelRun run;
  for (size_t number = 0; number < calls; ++number) {
    ModelRun::Call call{{}, Tensor(c.model.count, c.type())};
    std::vector<const void*> pointers;
    const model::HostLayout& hosts = c.model.hosts;
    for (size_t rank = 0; rank < (hosts.empty() ? c.model.ranks : hosts.ranks()); ++rank) {
      call.inputs.emplace_back(c.model.count, c.type());
      call.inputs.back().FillNormal(random);
      pointers.push_back(call.inputs.back().data());
    }
    const auto means = model::MeansOfHosts(hosts, pointers, c.model.count, c.type());
    if (!hosts.empty()) pointers.assign(means.size(), nullptr);
    for (size_t host = 0; host < means.size(); ++host) pointers[host] = means[host].data();
    model.Run(pointers, call.output.data());
    run.calls.push_back(std::move(call));
  }
  for (size_t rank = 0; rank < c.model.ranks; ++rank) {
    run.worker_residuals.push_back(model.worker_residual(rank));
  }
  run.server_residual = model.server_residual();
  return run;
}

void ExpectModelRun(CommGroup& group, const AllReduceCase& c, const ModelRun& run) {
  group.Run([&](int rank) {
    SCOPED_TRACE(::testing::Message() << c << "; rank " << rank);
    RunRank(group.comm(rank), static_cast<size_t>(rank), c, run);
  });
}

}  // namespace onebit::testing
