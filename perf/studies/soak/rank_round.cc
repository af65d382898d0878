// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Every rank runs the scalar model of all ranks beside the library; inputs are functions of seeds.
#include "perf/studies/soak/rank_round.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "perf/common/comm_stats.h"
#include "perf/common/seeded_elements.h"
#include "perf/common/tool_error.h"
#include "perf/studies/soak/result_check.h"

namespace onebit::soak {
namespace {

using model::AllReduceConfig;
using model::AllReduceModel;
using perf::Check;
using perf::ElementBytes;
using perf::KernelType;
using perf::StatsOf;

void Require(const std::string& problem) {
  if (!problem.empty()) throw perf::ToolError(problem);
}

AllReduceModel ModelOf(const TensorSpec& spec, size_t ranks) {
  AllReduceConfig config;
  config.ranks = ranks;
  config.count = spec.count;
  config.type = KernelType(spec.type);
  config.is_sum = spec.op == onebitSum;
  config.has_feedback = spec.mode == onebitModeEf;
  config.rule =
      spec.scale_rule == onebitScaleL1 ? kernels::ScaleRule::kL1 : kernels::ScaleRule::kL2;
  config.block = static_cast<size_t>(spec.block);
  config.chunk_alignment = static_cast<size_t>(spec.chunk_alignment);
  config.has_server_residual = spec.has_server_residual;
  config.residual_type = KernelType(spec.residual_type);
  config.is_transactional = spec.is_transactional;
  config.mask = spec.mask;
  return AllReduceModel(std::move(config));
}

void PutNan(void* values, onebitDataType_t type, size_t index) {
  const float f32 = std::numeric_limits<float>::quiet_NaN();
  const uint16_t f16 = type == onebitFloat16 ? 0x7e00 : 0x7fc0;
  const size_t bytes = ElementBytes(type);
  const void* value = type == onebitFloat32 ? static_cast<const void*>(&f32) : &f16;
  std::memcpy(static_cast<std::byte*>(values) + index * bytes, value, bytes);
}

}  // namespace

RankRound::RankRound(const RankSetup& setup, const Plan& plan, uint64_t round)
    : setup_(setup),
      plan_(plan),
      round_(round),
      comms_(plan.groups.size()),
      tensors_(plan.tensors.size()) {
  comms_[0] = setup.base;
}

void RankRound::Run() {
  for (size_t i = 0; i < plan_.actions.size(); ++i) {
    const auto where = [&] { return fmt::format("round {}, {}", round_, Describe(plan_, i)); };
    setup_.watchdog.Note(fmt::format("rank {}, {}", setup_.rank, where()));
    try {
      Execute(plan_.actions[i]);
    } catch (const perf::ToolError& error) {
      throw perf::ToolError(fmt::format("{}: {}", where(), error.what()), error.is_consequence());
    }
  }
}

void RankRound::Execute(const Action& action) {
  switch (action.kind) {
    case ActionKind::kSplit:
    case ActionKind::kShrink:
      if (IsMember(action)) Regroup(action);
      return;
    case ActionKind::kDestroyGroup:
      DestroyGroup(action);
      return;
    case ActionKind::kCreateTensor:
      if (IsMember(action)) CreateTensor(action);
      return;
    case ActionKind::kRebind:
      if (IsMember(action)) Rebind(action);
      return;
    case ActionKind::kReset:
      if (!IsMember(action)) return;
      Check(onebitCompressorReset(TensorOf(action).compressor.get()), "onebitCompressorReset");
      TensorOf(action).model->Reset();
      TensorOf(action).has_residuals = false;
      return;
    case ActionKind::kDestroyTensor:
      TensorOf(action) = Tensor();
      return;
    case ActionKind::kDense:
    case ActionKind::kCompressed:
      if (IsMember(action)) AllReduce(action);
      return;
    case ActionKind::kBroadcast:
      if (IsMember(action)) Broadcast(action);
      return;
    case ActionKind::kBarrier:
      if (IsMember(action)) Check(onebitBarrier(CommOf(action), nullptr), "onebitBarrier");
      return;
  }
}

bool RankRound::IsMember(const Action& action) const {
  const Members& members = MembersOf(action);
  return std::find(members.begin(), members.end(), setup_.rank) != members.end();
}

size_t RankRound::RankIn(const Members& members) const {
  return static_cast<size_t>(std::find(members.begin(), members.end(), setup_.rank) -
                             members.begin());
}

void RankRound::Regroup(const Action& action) {
  const size_t me = RankIn(MembersOf(action));
  if (action.kind == ActionKind::kSplit) {
    static_assert(kNoColor == ONEBIT_SPLIT_NOCOLOR);
    onebitComm_t split = nullptr;
    Check(onebitCommSplit(CommOf(action), action.colors[me], action.keys[me], &split, nullptr),
          "onebitCommSplit");
    Adopt(split, action);
    return;
  }
  const auto& excluded = action.excluded;
  if (std::find(excluded.begin(), excluded.end(), static_cast<int>(me)) != excluded.end()) return;
  onebitComm_t rest = nullptr;
  Check(onebitCommShrink(CommOf(action), excluded.data(), static_cast<int>(excluded.size()), &rest,
                         nullptr, ONEBIT_SHRINK_DEFAULT),
        "onebitCommShrink");
  Adopt(rest, action);
}

// The plan predicts the members of the new communicator.
void RankRound::Adopt(onebitComm_t comm, const Action& action) {
  if (comm != nullptr) setup_.comms.Add(comm);
  for (const int group : action.new_groups) {
    const Members& members = plan_.groups[static_cast<size_t>(group)];
    const size_t me = RankIn(members);
    if (me == members.size()) continue;
    if (comm == nullptr) throw perf::ToolError("there is no new communicator");
    comms_[static_cast<size_t>(group)] = comm;
    const auto rank = static_cast<size_t>(perf::RankOf(comm));
    const auto count = static_cast<size_t>(perf::CountOf(comm));
    if (rank == me && count == members.size()) return;
    throw perf::ToolError(
        fmt::format("the new communicator has {} ranks, and this is {}, not {} of {}", count, rank,
                    me, members.size()));
  }
  if (comm != nullptr) throw perf::ToolError("there is a communicator without a color");
}

void RankRound::DestroyGroup(const Action& action) {
  // Without onebitCommFinalize no rank may be inside a call any more. All ranks of the round wait,
  // which is more than needed but simple.
  if (!action.is_finalized) Check(onebitBarrier(setup_.base, nullptr), "onebitBarrier");
  if (!IsMember(action)) return;
  onebitComm_t comm = std::exchange(comms_[static_cast<size_t>(action.group)], nullptr);
  if (action.is_finalized) Check(onebitCommFinalize(comm), "onebitCommFinalize");
  const onebitCommStats_t stats = perf::StatsOf(comm);
  traffic_.logical_bytes += stats.logical_bytes;
  traffic_.wire_bytes += stats.bytes_sent;
  setup_.comms.Destroy(comm);
}

void RankRound::CreateTensor(const Action& action) {
  const TensorSpec& spec = plan_.tensors[static_cast<size_t>(action.tensor)];
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.mode = spec.mode;
  config.scaleRule = spec.scale_rule;
  config.block = spec.block;
  config.residualType = spec.residual_type;
  config.transactional = spec.is_transactional ? 1 : 0;
  config.chunkAlignment = spec.chunk_alignment;
  config.serverResidual = spec.has_server_residual ? 1 : 0;
  config.tensorId = action.tensor;  // of the round, so that it keeps it wherever it goes
  config.mask = spec.mask.empty() ? nullptr : spec.mask.data();
  onebitCompressor_t compressor = nullptr;
  Check(onebitCompressorCreate(&compressor, CommOf(action), spec.count, spec.type, &config),
        "onebitCompressorCreate");
  Tensor& tensor = TensorOf(action);
  tensor.compressor.reset(compressor);
  tensor.holders = MembersOf(action);
  tensor.model.emplace(ModelOf(spec, tensor.holders.size()));
}

void RankRound::Rebind(const Action& action) {
  Tensor& tensor = TensorOf(action);
  const Members& members = MembersOf(action);
  std::vector<size_t> survivors;
  for (const int member : members) {
    const auto former = std::find(tensor.holders.begin(), tensor.holders.end(), member);
    survivors.push_back(static_cast<size_t>(former - tensor.holders.begin()));
  }
  const onebitCompressorStats_t before = StatsOf(tensor.compressor.get());
  const bool is_replicated = before.exchanges == 1;
  int source = -1;
  Check(onebitCompressorRebind(tensor.compressor.get(), CommOf(action), &source),
        "onebitCompressorRebind");
  const onebitCompressorStats_t after = StatsOf(tensor.compressor.get());
  if (source < 0 || source >= static_cast<int>(members.size()) || after.epoch != before.epoch) {
    throw perf::ToolError(fmt::format("source {} of {} ranks, and {} commits after {}", source,
                                      members.size(), after.epoch, before.epoch));
  }
  const size_t expected =
      tensor.has_residuals ? tensor.model->LostElements(survivors, is_replicated) : 0;
  if (after.lost_elements - before.lost_elements != expected) {
    throw perf::ToolError(fmt::format("{} elements were lost, not {}",
                                      after.lost_elements - before.lost_elements, expected));
  }
  tensor.model.emplace(tensor.model->Rebound(survivors, is_replicated));
  tensor.holders = members;
}

std::vector<const void*> RankRound::FillInputs(const Action& action) {
  const Members& members = MembersOf(action);
  std::vector<const void*> inputs;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    std::byte* input = setup_.workspace.inputs[rank].data();
    perf::FillSeeded(input, action.count, action.type, action.data_seed, members[rank]);
    if (static_cast<int>(rank) == action.nan_rank) PutNan(input, action.type, action.nan_index);
    inputs.push_back(input);
  }
  return inputs;
}

// Prepares the send buffer with this rank's input, and clean memory for the result.
std::byte* RankRound::PrepareResult(const Action& action, const void* input,
                                    const std::byte** send) {
  Workspace& workspace = setup_.workspace;
  const size_t element = ElementBytes(action.type);
  const size_t bytes = action.count * element;
  std::memset(workspace.recv.data(), static_cast<int>(kUntouched),
              bytes + 2 * Workspace::kGuard * element);
  std::byte* result = workspace.recv.data() + action.recv_shift * element;
  std::byte* from =
      action.is_in_place ? result : workspace.send.data() + action.send_shift * element;
  if (bytes > 0) std::memcpy(from, input, bytes);
  *send = from;
  return result;
}

void RankRound::AllReduce(const Action& action) {
  const std::vector<const void*> inputs = FillInputs(action);
  void* expected = setup_.workspace.expected.data();
  const bool is_compressed = action.kind == ActionKind::kCompressed;
  if (is_compressed) {
    Tensor& tensor = TensorOf(action);
    const bool is_finite = tensor.model->Run(inputs, expected);
    const bool is_reset =
        !is_finite && !plan_.tensors[static_cast<size_t>(action.tensor)].is_transactional;
    tensor.has_residuals = is_finite || (tensor.has_residuals && !is_reset);
  } else {
    model::DenseAllReduce(inputs, action.count, KernelType(action.type), perf::KernelOp(action.op),
                          expected);
  }
  const std::byte* send = nullptr;
  std::byte* result = PrepareResult(action, inputs[RankIn(MembersOf(action))], &send);
  Check(onebitAllReduce(send, result, action.count, action.type, action.op,
                        is_compressed ? TensorOf(action).compressor.get() : nullptr, CommOf(action),
                        nullptr),
        "onebitAllReduce");
  Verify(action, result, expected);
}

void RankRound::Broadcast(const Action& action) {
  const std::vector<const void*> inputs = FillInputs(action);
  const std::byte* send = nullptr;
  std::byte* result = PrepareResult(action, inputs[RankIn(MembersOf(action))], &send);
  Check(onebitBroadcast(send, result, action.count, action.type, action.root, CommOf(action),
                        nullptr),
        "onebitBroadcast");
  Verify(action, result, inputs[static_cast<size_t>(action.root)]);
}

void RankRound::Verify(const Action& action, const std::byte* result, const void* expected) {
  const size_t element = ElementBytes(action.type);
  const size_t bytes = action.count * element;
  std::byte* start = setup_.workspace.recv.data();
  std::byte* begin = start + action.recv_shift * element;
  if (setup_.hooks.after_call) setup_.hooks.after_call(setup_.rank, action, {begin, bytes});
  Require(ProblemWithResult(result, expected, action.count, action.type));
  Require(ProblemWithGuard({start, begin}, {begin + bytes, Workspace::kGuard * element}));

  Verdict mine{.result = perf::HashBytes({begin, bytes})};
  if (action.kind == ActionKind::kCompressed) {
    const onebitCompressorStats_t stats = StatsOf(TensorOf(action).compressor.get());
    mine.epoch = stats.epoch;
    mine.nonfinite_calls = stats.nonfinite_calls;
  }
  const std::vector<Verdict> all = perf::GatherRecords(CommOf(action), mine);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].result != mine.result) {
      throw perf::ToolError(fmt::format("rank {} of the group has other bytes", rank));
    }
    if (all[rank].epoch != mine.epoch || all[rank].nonfinite_calls != mine.nonfinite_calls) {
      throw perf::ToolError(fmt::format(
          "rank {} of the group counts {} commits and {} calls with a NaN, not {} and {}", rank,
          all[rank].epoch, all[rank].nonfinite_calls, mine.epoch, mine.nonfinite_calls));
    }
  }
}

}  // namespace onebit::soak
