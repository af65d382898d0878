// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Computes how many warps a launch can use.
#include <algorithm>
#include <span>

#include "kernels/cuda/kernel_table.h"
#include "kernels/cuda/tiles.h"
#include "kernels/lossless.h"

namespace onebit::kernels::cuda {
namespace {

// More tiles than any device has warps.
constexpr uint64_t kManyTiles = 1 << 20;

uint64_t TilesOf(const SumParams& p) { return BlockCount(p.count, kTensorSumBlock); }
uint64_t TilesOf(const LambParams& p) { return BlockCount(p.update.count, kTensorSumBlock); }
template <unsigned kPieces>
uint64_t TilesOf(const FinishScaleParamsOf<kPieces>& p) {
  return p.list.count;
}
template <unsigned kCalls>
uint64_t TilesOf(const CommitParamsOf<kCalls>& p) {
  return BlockCount(p.count, kLanes);
}

uint64_t TilesOf(const LosslessParams& p) { return LosslessBlocks(p.count); }
uint64_t TilesOf(const LosslessDigestParams& p) { return BlockCount(p.bytes, kByteTile); }

uint64_t TilesOf(const ChecksumParams& p) {
  uint64_t tiles = 0;
  for (uint32_t i = 0; i < p.count; ++i) tiles += BlockCount(p.spans[i].bytes, kByteTile);
  return tiles;
}

template <unsigned kSpans>
uint64_t TilesOf(const FillParamsOf<kSpans>& p) {
  uint64_t tiles = 0;
  for (uint32_t i = 0; i < p.count; ++i) {
    tiles += BlockCount(p.spans[i].count * BytesOfFill(p.spans[i].value), kByteTile);
  }
  return tiles;
}

// The host cannot read these lists, but they are long enough for all of a device.
uint64_t TilesOf(const SealParamsOf<kInMemory>&) { return kManyTiles; }
uint64_t TilesOf(const CheckParamsOf<kInMemory>&) { return kManyTiles; }
uint64_t TilesOf(const FillParamsOf<kInMemory>&) { return kManyTiles; }

uint64_t TilesOf(const ZeroOneAccumulateParams& p) {
  return BlockCount(p.update.count, kElementTile);
}

template <class Params>
uint64_t TilesOf(const Params& p) {
  if constexpr (requires { p.list.tiles; }) {
    return p.list.tiles;
  } else if constexpr (requires { p.list.calls; }) {
    uint64_t tiles = 0;
    for (const CallMessages& call : std::span(p.list.calls).first(p.list.count)) {
      for (const MessageRun& run : std::span(call.runs).first(call.run_count)) {
        tiles += run.count * std::max<uint64_t>(BlockCount(run.bytes, kByteTile), 1);
      }
    }
    return tiles;
  } else {
    return BlockCount(p.count, kElementTile);
  }
}

// The number of warps that share a tile.
unsigned PartsIn(Kernel kernel) {
  switch (kernel) {
#define ONEBIT_ROW(X, name, Params, kMost, kFew, kParts) \
  case Kernel::k##name:                                  \
  case Kernel::k##name##Few:                             \
    return kParts;
    ONEBIT_CUDA_LIST_ROWS(ONEBIT_ROW, )
#undef ONEBIT_ROW
    default:
      return 1;
  }
}

template <class Params>
uint32_t LengthOf(const Params& p) {
  if constexpr (requires { p.list; }) {
    return p.list.count;
  } else {
    return p.count;
  }
}

// The longest list that such parameters hold.
template <template <unsigned> class Params, unsigned kLength>
constexpr uint32_t MaxLengthOf(const Params<kLength>*) {
  return kLength;
}

}  // namespace

Kernel ShortestFor(Kernel kernel, const void* params) {
  switch (kernel) {
#define ONEBIT_X(name, type)                                                                \
  case Kernel::k##name: {                                                                   \
    constexpr const ParamsOf<Kernel::k##name##Few>* kFew = nullptr;                         \
    const bool is_short = LengthOf(*static_cast<const type*>(params)) <= MaxLengthOf(kFew); \
    return is_short ? Kernel::k##name##Few : kernel;                                        \
  }
    ONEBIT_CUDA_LIST_KERNELS(ONEBIT_X)
#undef ONEBIT_X
    default:
      return kernel;
  }
}

uint64_t WarpsFor(Kernel kernel, const void* params) {
  if (kernel == Kernel::kFinishSum || kernel == Kernel::kFinishLamb) return 1;
  switch (kernel) {
#define ONEBIT_X(name, type) \
  case Kernel::k##name:      \
    return TilesOf(*static_cast<const type*>(params)) * PartsIn(kernel);
    ONEBIT_CUDA_KERNELS(ONEBIT_X)
#undef ONEBIT_X
    case Kernel::kCount:
      break;
  }
  return 0;
}

}  // namespace onebit::kernels::cuda
