// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/nccl_preload/real_calls.h"

#include "plugins/nccl_preload/real_nccl.h"

namespace onebit::preload {
namespace {

using PairFunction = Result(const void*, size_t, int, int, Comm, Stream);

template <typename... Config>
using PartsFunction = Result(const void*, void*, size_t, int, Comm, Stream, Config...);

template <typename... Config>
using ReductionFunction = Result(const void*, void*, size_t, int, int, Comm, Stream, Config...);

// Each collective has two forms. The second one takes a configuration.
template <typename... Config>
Result MakeCollective(const DataCall& call, Comm native,
                      RealFunction<ReductionFunction<Config...>>& all_reduce,
                      RealFunction<ReductionFunction<Config...>>& reduce_scatter,
                      RealFunction<PartsFunction<Config...>>& all_gather,
                      RealFunction<PartsFunction<Config...>>& all_to_all, Config... config) {
  const auto count = static_cast<size_t>(call.facts.count);
  const int type = static_cast<int>(call.facts.type);
  if (IsReduction(call.facts.operation)) {
    auto& real = call.facts.operation == Operation::kAllReduce ? all_reduce : reduce_scatter;
    return real(call.send, call.recv, count, type, call.facts.reduction, native, call.stream,
                config...);
  }
  auto& real = call.facts.operation == Operation::kAllGather ? all_gather : all_to_all;
  return real(call.send, call.recv, count, type, native, call.stream, config...);
}

Result MakePair(const DataCall& call, Comm native) {
  static RealFunction<PairFunction> send("ncclSend");
  static RealFunction<PairFunction> recv("ncclRecv");
  const bool is_receive = call.facts.operation == Operation::kRecv;
  auto& real = is_receive ? recv : send;
  return real(is_receive ? call.recv : call.send, static_cast<size_t>(call.facts.count),
              static_cast<int>(call.facts.type), call.peer, native, call.stream);
}

Result MakeConfigured(const DataCall& call, Comm native) {
  static RealFunction<ReductionFunction<const void*>> all_reduce("ncclAllReduceConfig");
  static RealFunction<ReductionFunction<const void*>> reduce_scatter("ncclReduceScatterConfig");
  static RealFunction<PartsFunction<const void*>> all_gather("ncclAllGatherConfig");
  static RealFunction<PartsFunction<const void*>> all_to_all("ncclAlltoAllConfig");
  return MakeCollective<const void*>(call, native, all_reduce, reduce_scatter, all_gather,
                                     all_to_all, call.config);
}

}  // namespace

Result MakeRealCall(const DataCall& call, Comm native) {
  static RealFunction<ReductionFunction<>> all_reduce("ncclAllReduce");
  static RealFunction<ReductionFunction<>> reduce_scatter("ncclReduceScatter");
  static RealFunction<PartsFunction<>> all_gather("ncclAllGather");
  static RealFunction<PartsFunction<>> all_to_all("ncclAlltoAll");
  if (IsPair(call.facts.operation)) return MakePair(call, native);
  if (call.config != nullptr) return MakeConfigured(call, native);
  return MakeCollective<>(call, native, all_reduce, reduce_scatter, all_gather, all_to_all);
}

}  // namespace onebit::preload
