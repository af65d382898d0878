// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/nccl_preload/real_reductions.h"

#include "plugins/nccl_preload/real_nccl.h"

namespace onebit::preload {

Result MakeRealReduction(const Reduction& call, Comm native) {
  using Function = Result(const void*, void*, size_t, int, int, Comm, Stream);
  static RealFunction<Function> all_reduce("ncclAllReduce");
  static RealFunction<Function> reduce_scatter("ncclReduceScatter");
  auto& real = call.facts.operation == Operation::kReduceScatter ? reduce_scatter : all_reduce;
  return real(call.send, call.recv, static_cast<size_t>(call.facts.count),
              static_cast<int>(call.facts.type), call.facts.reduction, native, call.stream);
}

}  // namespace onebit::preload
