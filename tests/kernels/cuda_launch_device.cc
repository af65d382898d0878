// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs CUDA kernels on a device: every launch goes through libonebit-cuda.so and works on copies of
// the memory that it may touch.
#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

#include "kernels/cuda/tiles.h"
#include "kernels/lossless.h"
#include "tests/kernels/cuda_launch.h"
#include "tests/kernels/cuda_stage.h"

namespace onebit::kernels::cuda {
namespace {

// block == 0: one scale for all of a piece.
size_t ScaleBytesOf(const Piece& piece, uint32_t block) {
  if (piece.count == 0) return 0;
  return sizeof(float) * (block == 0 ? 1 : BlockCount(piece.count, block));
}

// Places what all kernels may use of a piece, but for its values. An element of the residual has
// `residual_bytes`.
void Place(Stage* stage, Piece* piece, uint32_t block, size_t residual_bytes) {
  stage->In(&piece->mask, BitBytes(piece->count));
  stage->InOut(&piece->scales, ScaleBytesOf(*piece, block));
  stage->InOut(&piece->bits, BitBytes(piece->count));
  for (void*& residual : piece->residuals) {
    stage->InOut(&residual, residual_bytes * piece->count);
  }
  stage->In(&piece->current, sizeof(*piece->current));
  stage->InOut(&piece->faults, sizeof(*piece->faults));
  stage->In(&piece->decision, sizeof(*piece->decision));
}

// `value_bytes` are those of an element that kernels write.
template <unsigned kPieces>
void Place(Stage* stage, PieceListOf<kPieces>* list, uint32_t block, size_t value_bytes,
           size_t residual_bytes) {
  for (Piece& piece : std::span(list->pieces).first(list->count)) {
    if (value_bytes != 0) stage->InOut(&piece.values, value_bytes * piece.count);
    Place(stage, &piece, block, residual_bytes);
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

template <unsigned kPieces>
void Place(Stage* stage, Kernel kernel, CompressParamsOf<kPieces>* p) {
  const bool writes_sums = kernel == Kernel::kCompressSigns || kernel == Kernel::kCompressSignsFew;
  Place(stage, &p->tile_sums, p->list.tiles, writes_sums);
  for (Piece& piece : std::span(p->list.pieces).first(p->list.count)) {
    stage->In(&piece.values, BytesOf(p->input_type) * piece.count);
  }
  Place(stage, &p->list, p->block, 0, BytesOf(p->residual_type));
}

template <unsigned kPieces>
void Place(Stage* stage, Kernel kernel, ReduceParamsOf<kPieces>* p) {
  const bool writes_sums = kernel == Kernel::kReduceSigns || kernel == Kernel::kReduceSignsFew;
  Place(stage, &p->tile_sums, p->list.tiles, writes_sums);
  // All pieces are parts of the same packets, which begin with the first.
  const std::span pieces = std::span(p->list.pieces).first(p->list.count);
  const SourcePackets host = {pieces[0].source, p->stride, pieces[0].own_source, p->rank, p->ranks};
  size_t bytes = 0;
  for (const Piece& piece : pieces) {
    if (piece.count == 0) continue;
    const size_t end =
        std::max<size_t>(ScaleBytesOf(piece, p->block), piece.source_bits + BitBytes(piece.count));
    bytes = std::max<size_t>(bytes, static_cast<size_t>(piece.source - host.sources) + end);
  }
  SourcePackets packets = host;
  Place(stage, &packets, bytes);
  if (p->terms.factors != nullptr) stage->In(&p->terms.factors, p->ranks * sizeof(float));
  for (Piece& piece : pieces) {
    piece.source = packets.sources + (piece.source - host.sources);
    piece.own_source = packets.own_source + (piece.own_source - host.own_source);
  }
  Place(stage, &p->list, p->block, BytesOf(p->output_type), BytesOf(p->residual_type));
}

// Bytes up to the end of a piece's codes in its packet.
size_t PacketBytesOf(const LowBitPiece& piece, LowBitCodec codec) {
  if (piece.count == 0) return 0;
  // Packets of bf16 have no scales.
  if (piece.scale_count == 0) return (piece.element + piece.count) * sizeof(uint16_t);
  return ScaleBytes(codec, piece.scale_count) + CodeBytes(codec, piece.element + piece.count);
}

// The same for all pieces of a list that have this packet in common.
template <unsigned kPieces, typename Pointer>
size_t SharedPacketBytes(const LowBitPieceListOf<kPieces>& list, LowBitCodec codec,
                         Pointer LowBitPiece::*member, const LowBitPiece& piece) {
  size_t bytes = 0;
  for (const LowBitPiece& other : std::span(list.pieces).first(list.count)) {
    if (other.*member == piece.*member) bytes = std::max(bytes, PacketBytesOf(other, codec));
  }
  return bytes;
}

// Places what all low-bit kernels may use of a list, but for values and the packets of other ranks.
template <unsigned kPieces>
void Place(Stage* stage, LowBitPieceListOf<kPieces>* list, LowBitCodec codec,
           size_t residual_bytes) {
  const LowBitPieceListOf<kPieces> original = *list;
  for (unsigned i = 0; i < list->count; ++i) {
    LowBitPiece& piece = list->pieces[i];
    stage->In(&piece.mask, BitBytes(piece.count));
    for (void*& residual : piece.residuals) stage->InOut(&residual, residual_bytes * piece.count);
    stage->InOut(&piece.words, sizeof(*piece.words));
    stage->InOut(&piece.faults, sizeof(*piece.faults));
    stage->In(&piece.decision, sizeof(*piece.decision));
    stage->InOut(&piece.packet, SharedPacketBytes(original, codec, &LowBitPiece::packet, piece));
  }
}

template <unsigned kPieces>
void Place(Stage* stage, Kernel, LowBitCompressParamsOf<kPieces>* p) {
  for (LowBitPiece& piece : std::span(p->list.pieces).first(p->list.count)) {
    stage->In(&piece.values, BytesOf(p->input_type) * piece.count);
  }
  Place(stage, &p->list, p->codec, BytesOf(p->residual_type));
}

template <unsigned kPieces>
void Place(Stage* stage, Kernel, LowBitReduceParamsOf<kPieces>* p) {
  const LowBitPieceListOf<kPieces> original = p->list;
  for (LowBitPiece& piece : std::span(p->list.pieces).first(p->list.count)) {
    SourcePackets packets = {piece.source, p->stride, piece.own_source, p->rank, p->ranks};
    Place(stage, &packets, SharedPacketBytes(original, p->codec, &LowBitPiece::own_source, piece));
    piece.source = packets.sources;
    piece.own_source = packets.own_source;
    stage->InOut(&piece.values, BytesOf(p->output_type) * piece.count);
  }
  if (p->terms.factors != nullptr) stage->In(&p->terms.factors, p->ranks * sizeof(float));
  Place(stage, &p->list, p->codec, BytesOf(p->residual_type));
}

template <unsigned kPieces>
void Place(Stage* stage, Kernel, LowBitDecodeParamsOf<kPieces>* p) {
  for (LowBitPiece& piece : std::span(p->list.pieces).first(p->list.count)) {
    stage->InOut(&piece.values, BytesOf(p->output_type) * piece.count);
  }
  Place(stage, &p->list, p->codec, sizeof(float));
}

template <unsigned kPieces>
void Place(Stage* stage, Kernel, FinishScaleParamsOf<kPieces>* p) {
  stage->In(&p->tile_sums, p->list.tiles * sizeof(TileSum));
  Place(stage, &p->list, 0, 0, 0);
}

template <unsigned kPieces>
void Place(Stage* stage, Kernel, DecodeParamsOf<kPieces>* p) {
  Place(stage, &p->list, p->block, BytesOf(p->output_type), sizeof(float));
}

template <unsigned kPieces>
void Place(Stage* stage, Kernel, CopyParamsOf<kPieces>* p) {
  for (Piece& piece : std::span(p->list.pieces).first(p->list.count)) {
    stage->In(&piece.source, BytesOf(p->type) * piece.count);
  }
  Place(stage, &p->list, 0, BytesOf(p->type), 0);
}

void Place(Stage* stage, Kernel, DenseReduceParams* p) {
  Place(stage, &p->pieces, BytesOf(p->type) * p->count);
  if (p->terms.factors != nullptr) {
    stage->In(&p->terms.factors, p->pieces.ranks * sizeof(float));
  }
  const DataType output_type = p->terms.is_output_f32 ? DataType::kF32 : p->type;
  stage->InOut(&p->output, BytesOf(output_type) * p->count);
}

void Place(Stage* stage, Kernel, ChecksumParams* p) {
  for (uint32_t i = 0; i < p->count; ++i) {
    stage->In(&p->spans[i].data, p->spans[i].bytes);
    stage->InOut(&p->spans[i].checksum, sizeof(Checksum));
  }
}

void Place(Stage* stage, Kernel kernel, LosslessParams* p) {
  const size_t bytes = p->count * p->width;
  const size_t blocks = LosslessBlocks(p->count);
  uint64_t end = 0;
  for (size_t block = 0; block < blocks; ++block)
    end += LosslessWord::Unpack(p->words[block]).bytes;
  stage->InOut(&p->elements, bytes);
  stage->In(&p->before, bytes);
  stage->InOut(&p->words, blocks * sizeof(*p->words));
  stage->InOut(&p->faults, sizeof(*p->faults));
  if (kernel == Kernel::kLosslessMeasure) return;
  const uint64_t start = p->starts[0];
  stage->In(&p->starts, blocks * sizeof(*p->starts));
  const uint64_t slack = kernel == Kernel::kLosslessDecode ? kLosslessSlack : 0;
  stage->InOut(&p->bytes, (start + end + slack + 3) / 4 * 4);
}

void Place(Stage* stage, Kernel, LosslessDigestParams* p) {
  stage->In(&p->data, p->bytes);
  stage->InOut(&p->sum, sizeof(*p->sum));
}

void Place(Stage* stage, HeaderTemplate* header) {
  stage->In(&header->sequence, sizeof(*header->sequence));
  stage->In(&header->replica_age, sizeof(*header->replica_age));
}

// The strides of runs are positive here.
void Place(Stage* stage, CallMessages* call) {
  Place(stage, &call->filled);
  stage->InOut(&call->faults, sizeof(*call->faults));
  for (MessageRun& run : std::span(call->runs).first(call->run_count)) {
    const auto distance = static_cast<uint64_t>(run.stride) * (run.count - 1);
    stage->InOut(&run.header, distance + kHeaderBytes + run.bytes);
    stage->InOut(&run.sums, run.count * sizeof(PayloadSum));
  }
}

void Place(Stage* stage, FillSpan* span) {
  stage->InOut(&span->data, span->count * BytesOfFill(span->value));
  stage->In(&span->condition, sizeof(*span->condition));
  stage->In(&span->decision, sizeof(*span->decision));
}

void Place(Stage* stage, EndedCall* call) {
  stage->InOut(&call->words, sizeof(*call->words));
  stage->InOut(&call->sequence, sizeof(*call->sequence));
  stage->InOut(&call->faults, sizeof(*call->faults));
  stage->In(&call->decision, sizeof(*call->decision));
}

// Places what the entries of a list point to and, if the list is in memory, the list itself.
template <class Entry, size_t kLength>
void PlaceList(Stage* stage, Entry (*list)[kLength], uint32_t count) {
  for (Entry& entry : std::span(*list).first(count)) Place(stage, &entry);
}
template <class Entry>
void PlaceList(Stage* stage, const Entry** list, uint32_t count) {
  std::vector<Entry> entries(*list, *list + count);
  for (Entry& entry : entries) Place(stage, &entry);
  *list = entries.data();
  stage->In(list, entries.size() * sizeof(Entry));  // copies them
}

template <unsigned kCalls>
void Place(Stage* stage, Kernel, SealParamsOf<kCalls>* p) {
  PlaceList(stage, &p->list.calls, p->list.count);
}

template <unsigned kCalls>
void Place(Stage* stage, Kernel, CheckParamsOf<kCalls>* p) {
  stage->InOut(&p->failure, sizeof(*p->failure));
  PlaceList(stage, &p->list.calls, p->list.count);
}

template <unsigned kSpans>
void Place(Stage* stage, Kernel, FillParamsOf<kSpans>* p) {
  PlaceList(stage, &p->spans, p->count);
}

template <unsigned kCalls>
void Place(Stage* stage, Kernel, CommitParamsOf<kCalls>* p) {
  stage->InOut(&p->halted, sizeof(*p->halted));
  stage->InOut(&p->nonfinite_calls, sizeof(*p->nonfinite_calls));
  PlaceList(stage, &p->calls, p->count);
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

// Floors of blocks: null, or one for every kTensorSumBlock elements.
void PlaceFloors(Stage* stage, const float** floors, size_t count) {
  stage->In(floors, BlockCount(count, kTensorSumBlock) * sizeof(float));
}

void Place(Stage* stage, Kernel, AdamUpdate* p) {
  const size_t bytes = sizeof(float) * p->count;
  for (float** state : {&p->x, &p->m, &p->v}) stage->InOut(state, bytes);
  stage->In(&p->input, BytesOf(p->input_type) * p->count);
  stage->In(&p->mask, BitBytes(p->count));
  PlaceFloors(stage, &p->block_floors, p->count);
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
  PlaceFloors(stage, &p->block_floors, p->count);
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

int Repetitions(int most) { return most; }

}  // namespace onebit::kernels::cuda
