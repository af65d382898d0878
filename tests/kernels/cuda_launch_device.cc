// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs CUDA kernels on a device: every launch goes through libonebit-cuda.so and works on copies of
// the memory that it may touch.
#include <algorithm>
#include <cstddef>
#include <stdexcept>

#include "tests/kernels/cuda_launch.h"
#include "tests/kernels/cuda_stage.h"

namespace onebit::kernels::cuda {
namespace {

// Elements from the start of a buffer to the end of the last piece, where pieces begin at
// `begin_of(piece)` and have `size_of(piece)`.
template <class Begin, class SizeOf>
size_t Extent(const PieceList& list, const Begin& begin_of, const SizeOf& size_of) {
  size_t extent = 0;
  for (uint32_t k = 0; k < list.count; ++k) {
    const Piece& piece = list.pieces[k];
    if (piece.count != 0) extent = std::max<size_t>(extent, begin_of(piece) + size_of(piece));
  }
  return extent;
}

size_t CountOf(const Piece& piece) { return piece.count; }

size_t ElementsOf(const PieceList& list) {
  return Extent(
      list, [](const Piece& piece) { return piece.element; }, CountOf);
}

size_t MaskBytesOf(const PieceList& list) {
  return Extent(
      list, [](const Piece& piece) { return piece.mask_byte; },
      [](const Piece& piece) { return BitBytes(piece.count); });
}

// block == 0: one scale for all of a piece.
size_t ScaleBytesOf(const Piece& piece, uint32_t block) {
  if (piece.count == 0) return 0;
  return sizeof(float) * (block == 0 ? 1 : BlockCount(piece.count, block));
}

void Place(Stage* stage, Residual* residual, const PieceList& list) {
  const size_t bytes = BytesOf(residual->type) *
                       Extent(
                           list, [](const Piece& piece) { return piece.residual; }, CountOf);
  for (void*& generation : residual->generations) stage->InOut(&generation, bytes);
  stage->In(&residual->current, sizeof(*residual->current));
}

void Place(Stage* stage, PieceList* list, uint32_t block) {
  for (uint32_t k = 0; k < list->count; ++k) {
    Piece& piece = list->pieces[k];
    stage->InOut(&piece.scales, ScaleBytesOf(piece, block));
    stage->InOut(&piece.bits, BitBytes(piece.count));
  }
}

void Place(Stage* stage, SourcePackets* packets, size_t bytes_each) {
  const size_t all = bytes_each == 0 ? 0 : (packets->ranks - 1) * packets->stride + bytes_each;
  stage->In(&packets->sources, all);
  stage->In(&packets->own_source, bytes_each);
}

// Tile sums are written by the kernels of a first pass, and read by the kernel that adds them up.
void Place(Stage* stage, TileSum** tile_sums, size_t tiles, bool is_written) {
  const size_t bytes = tiles * sizeof(TileSum);
  is_written ? stage->Out(tile_sums, bytes) : stage->In(tile_sums, bytes);
}

void Place(Stage* stage, Kernel kernel, CompressParams* p) {
  stage->In(&p->input, BytesOf(p->input_type) * ElementsOf(p->list));
  Place(stage, &p->residual, p->list);
  stage->In(&p->mask, MaskBytesOf(p->list));
  stage->InOut(&p->verdict, sizeof(*p->verdict));
  Place(stage, &p->tile_sums, p->list.tiles, kernel == Kernel::kCompressSigns);
  Place(stage, &p->list, p->block);
}

void Place(Stage* stage, Kernel kernel, ReduceParams* p) {
  const auto none = [](const Piece&) { return size_t{0}; };
  Place(stage, &p->packets, Extent(p->list, none, [&](const Piece& piece) {
          return std::max<size_t>(piece.source_scales + ScaleBytesOf(piece, p->block),
                                  piece.source_bits + BitBytes(piece.count));
        }));
  Place(stage, &p->residual, p->list);
  stage->In(&p->mask, MaskBytesOf(p->list));
  stage->InOut(&p->verdict, sizeof(*p->verdict));
  Place(stage, &p->tile_sums, p->list.tiles, kernel == Kernel::kReduceSigns);
  stage->InOut(&p->output, BytesOf(p->output_type) * ElementsOf(p->list));
  Place(stage, &p->list, p->block);
}

void Place(Stage* stage, Kernel, FinishScaleParams* p) {
  stage->In(&p->tile_sums, p->list.tiles * sizeof(TileSum));
  stage->InOut(&p->verdict, sizeof(*p->verdict));
  Place(stage, &p->list, 0);
}

void Place(Stage* stage, Kernel, DecodeParams* p) {
  stage->InOut(&p->output, BytesOf(p->output_type) * ElementsOf(p->list));
  stage->In(&p->mask, MaskBytesOf(p->list));
  Place(stage, &p->held, p->list);
  stage->InOut(&p->verdict, sizeof(*p->verdict));
  Place(stage, &p->list, p->block);
}

void Place(Stage* stage, Kernel, CopyParams* p) {
  const size_t bytes = BytesOf(p->type) * ElementsOf(p->list);
  stage->In(&p->input, bytes);
  stage->InOut(&p->output, bytes);
  stage->In(&p->mask, MaskBytesOf(p->list));
  stage->InOut(&p->verdict, sizeof(*p->verdict));
}

void Place(Stage* stage, Kernel, DenseReduceParams* p) {
  Place(stage, &p->pieces, BytesOf(p->type) * p->count);
  stage->InOut(&p->output, BytesOf(p->type) * p->count);
}

void Place(Stage* stage, Kernel, ChecksumParams* p) {
  for (uint32_t i = 0; i < p->count; ++i) {
    stage->In(&p->spans[i].data, p->spans[i].bytes);
    stage->InOut(&p->spans[i].checksum, sizeof(Checksum));
  }
}

void Place(Stage* stage, HeaderTemplate* header) {
  stage->In(&header->sequence, sizeof(*header->sequence));
  stage->In(&header->replica_age, sizeof(*header->replica_age));
}

void Place(Stage* stage, MessageList* list) {
  for (uint32_t i = 0; i < list->count; ++i) {
    stage->InOut(&list->messages[i].header, kHeaderBytes + list->messages[i].bytes);
    stage->InOut(&list->messages[i].sum, sizeof(PayloadSum));
  }
}

void Place(Stage* stage, Kernel, SealParams* p) {
  Place(stage, &p->header);
  stage->In(&p->verdict, sizeof(*p->verdict));
  Place(stage, &p->list);
}

void Place(Stage* stage, Kernel, CheckParams* p) {
  Place(stage, &p->header);
  stage->InOut(&p->verdict, sizeof(*p->verdict));
  stage->InOut(&p->failure, sizeof(*p->failure));
  Place(stage, &p->list);
}

void Place(Stage* stage, Kernel, FillParams* p) {
  const size_t element = p->value == FillValue::kZeroBytes ? 1
                         : p->value == FillValue::kNanF32  ? 4
                                                           : 2;
  stage->In(&p->condition, sizeof(*p->condition));
  for (uint32_t i = 0; i < p->count; ++i) {
    stage->InOut(&p->spans[i].data, p->spans[i].count * element);
  }
}

void Place(Stage* stage, Kernel, CommitParams* p) {
  stage->InOut(&p->words, sizeof(*p->words));
  stage->InOut(&p->sequence, sizeof(*p->sequence));
  stage->InOut(&p->verdict, sizeof(*p->verdict));
}

void Place(Stage* stage, Kernel kernel, SumParams* p) {
  const size_t tiles = BlockCount(p->count, kTensorSumBlock);
  stage->In(&p->values, BytesOf(p->type) * p->count);
  Place(stage, &p->tile_sums, tiles, kernel != Kernel::kFinishSum);
  stage->InOut(&p->sum, sizeof(*p->sum));
}

void Place(Stage* stage, Kernel, MaskParams* p) {
  stage->In(&p->v, sizeof(float) * p->count);
  stage->InOut(&p->mask, BitBytes(p->count));
  stage->InOut(&p->set_bits, sizeof(*p->set_bits));
}

void Place(Stage* stage, Kernel, AdamUpdate* p) {
  const size_t bytes = sizeof(float) * p->count;
  for (float** state : {&p->x, &p->m, &p->v}) stage->InOut(state, bytes);
  stage->In(&p->input, BytesOf(p->input_type) * p->count);
  stage->In(&p->mask, BitBytes(p->count));
  stage->InOut(&p->copy, BytesOf(p->copy_type) * p->count);
}

void Place(Stage* stage, Kernel, LocalMomentumParams* p) {
  stage->In(&p->m, sizeof(float) * p->count);
  stage->In(&p->g, BytesOf(p->g_type) * p->count);
  stage->In(&p->mask, BitBytes(p->count));
  stage->InOut(&p->out, sizeof(float) * p->count);
}

void Place(Stage* stage, Kernel kernel, LambParams* p) {
  LambUpdate& update = p->update;
  const size_t bytes = sizeof(float) * update.count;
  const size_t tiles = BlockCount(update.count, kTensorSumBlock) * sizeof(LambTile);
  stage->In(&update.x, bytes);
  for (float** state : {&update.m, &update.v, &update.v_fresh}) stage->InOut(state, bytes);
  stage->In(&update.input, BytesOf(update.input_type) * update.count);
  stage->In(&update.mask, BitBytes(update.count));
  if (kernel == Kernel::kFinishLamb) {
    stage->In(&p->tiles, tiles);
  } else {
    stage->Out(&p->tiles, tiles);
  }
  stage->InOut(&p->norms, sizeof(*p->norms));
}

void Place(Stage* stage, Kernel kernel, ZeroOneUpdate* p) {
  const size_t bytes = sizeof(float) * p->count;
  for (float** state : {&p->x, &p->m, &p->u, &p->x_sync}) stage->InOut(state, bytes);
  stage->In(&p->v, bytes);
  const size_t input_bytes = kernel == Kernel::kZeroOneSync ? 4 : BytesOf(p->input_type);
  stage->In(&p->input, input_bytes * p->count);
  stage->In(&p->mask, BitBytes(p->count));
  stage->InOut(&p->copy, BytesOf(p->copy_type) * p->count);
}

void Place(Stage* stage, Kernel kernel, ZeroOneAccumulateParams* p) {
  Place(stage, kernel, &p->update);
  stage->InOut(&p->out, sizeof(float) * p->update.count);
}

void Place(Stage* stage, Kernel, RefreshVarianceParams* p) {
  stage->In(&p->v, sizeof(float) * p->count);
  stage->In(&p->input, BytesOf(p->type) * p->count);
  stage->InOut(&p->out, sizeof(float) * p->count);
}

template <class Params>
void RunOnDevice(Kernel kernel, Params params) {
  const TestDevice* const device = TestDevice::Find();
  if (device == nullptr) throw std::runtime_error("no CUDA device");
  Stage stage(*device);
  Place(&stage, kernel, &params);
  const Status status = device->devices().Launch(kernel, &params, device->stream());
  if (!status.ok()) throw std::runtime_error(status.text());
  stage.Finish();
}

}  // namespace

void RunKernel(Kernel kernel, const void* params) {
  switch (kernel) {
#define ONEBIT_X(name, type) \
  case Kernel::k##name:      \
    return RunOnDevice(kernel, *static_cast<const type*>(params));
    ONEBIT_CUDA_KERNELS(ONEBIT_X)
#undef ONEBIT_X
    case Kernel::kCount:
      break;
  }
  throw std::logic_error("no such kernel");
}

}  // namespace onebit::kernels::cuda
