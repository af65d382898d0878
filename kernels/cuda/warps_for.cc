// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Computes how many warps a launch can use.
#include "kernels/cuda/kernel_table.h"
#include "kernels/cuda/tiles.h"

namespace onebit::kernels::cuda {
namespace {

uint64_t TilesOf(const SumParams& p) { return BlockCount(p.count, kTensorSumBlock); }
uint64_t TilesOf(const LambParams& p) { return BlockCount(p.update.count, kTensorSumBlock); }
uint64_t TilesOf(const CompressParams& p) { return p.list.tiles; }
uint64_t TilesOf(const ReduceParams& p) { return p.list.tiles; }
uint64_t TilesOf(const DecodeParams& p) { return p.list.tiles; }
uint64_t TilesOf(const CopyParams& p) { return p.list.tiles; }
uint64_t TilesOf(const FinishScaleParams& p) { return p.is_per_piece ? p.list.count : 1; }
uint64_t TilesOf(const MessageList& list) {
  uint64_t tiles = 0;
  for (uint32_t i = 0; i < list.count; ++i) {
    const uint64_t of_payload = BlockCount(list.messages[i].bytes, kByteTile);
    tiles += of_payload == 0 ? 1 : of_payload;
  }
  return tiles;
}
uint64_t TilesOf(const SealParams& p) { return TilesOf(p.list); }
uint64_t TilesOf(const CheckParams& p) { return TilesOf(p.list); }
uint64_t TilesOf(const CommitParams&) { return 1; }

uint64_t TilesOf(const ChecksumParams& p) {
  uint64_t tiles = 0;
  for (uint32_t i = 0; i < p.count; ++i) tiles += BlockCount(p.spans[i].bytes, kByteTile);
  return tiles;
}

uint64_t TilesOf(const FillParams& p) {
  const uint64_t bytes_each = BytesOfFill(p.value);
  uint64_t tiles = 0;
  for (uint32_t i = 0; i < p.count; ++i) {
    tiles += BlockCount(p.spans[i].count * bytes_each, kByteTile);
  }
  return tiles;
}

uint64_t TilesOf(const ZeroOneAccumulateParams& p) {
  return BlockCount(p.update.count, kElementTile);
}

template <class Elementwise>
uint64_t TilesOf(const Elementwise& p) {
  return BlockCount(p.count, kElementTile);
}

// The number of warps that share a tile.
unsigned PartsIn(Kernel kernel) {
  switch (kernel) {
    case Kernel::kCompressResidual:
    case Kernel::kReduceResidual:
    case Kernel::kDecodeAverage:
    case Kernel::kDecode:
    case Kernel::kAddDelta:
    case Kernel::kCopy:
      return kTileParts;
    default:
      return 1;
  }
}

}  // namespace

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
