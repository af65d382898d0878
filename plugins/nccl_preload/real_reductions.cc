// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/nccl_preload/real_reductions.h"

#include "plugins/nccl_preload/real_nccl.h"

namespace onebit::preload {
namespace {

Result MakeConfigured(const Reduction& call, Comm native) {
  using Function = Result(const void*, void*, size_t, int, int, Comm, Stream, const void*);
  static RealFunction<Function> all_reduce("ncclAllReduceConfig");
  static RealFunction<Function> reduce_scatter("ncclReduceScatterConfig");
  auto& real = call.facts.operation == Operation::kReduceScatter ? reduce_scatter : all_reduce;
  return real(call.send, call.recv, static_cast<size_t>(call.facts.count),
              static_cast<int>(call.facts.type), call.facts.reduction, native, call.stream,
              static_cast<const void*>(call.config));
}

}  // namespace

Result MakeRealReduction(const Reduction& call, Comm native) {
  using Function = Result(const void*, void*, size_t, int, int, Comm, Stream);
  static RealFunction<Function> all_reduce("ncclAllReduce");
  static RealFunction<Function> reduce_scatter("ncclReduceScatter");
  if (call.config != nullptr) return MakeConfigured(call, native);
  auto& real = call.facts.operation == Operation::kReduceScatter ? reduce_scatter : all_reduce;
  return real(call.send, call.recv, static_cast<size_t>(call.facts.count),
              static_cast<int>(call.facts.type), call.facts.reduction, native, call.stream);
}

}  // namespace onebit::preload
