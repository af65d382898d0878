// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The parameters of each CUDA kernel, passed by value at its launch. Shared by the kernels, the
// plugin that launches them and the executors that fill them in.
//
// All pointers are memory that the device can address: its own, or pinned host memory. A kernel
// allocates and frees nothing. The rules of kernels.h apply, and results are equal to those of
// `reference` to the bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/optimizer_kernels.h"
#include "kernels/types.h"

namespace onebit::kernels::cuda {

// Bits of the word with the outcome of a call so far. Kernels only ever set them.
enum Faults : uint32_t {
  kNonfinite = 1,  // a value of this rank, or of one it received from, is not finite
  kFailed = 2,     // a message differed from what was expected
  // An earlier call failed: kernels of this one write no residual, except that kFillIf clears
  // residuals without a second generation. Set before the call begins.
  kHalted = 4,
  kPeerFailed = 8,  // another rank reports a failure, in this call or before it
};

// A fault word has a second one where the host takes part in the call: the one above, and a
// decision in pinned memory, which the host alone writes and kernels only read. Each side has a
// word of its own because a bus may lack atomic operations. The faults are the bits of both.

// In CompressorWords::current: the last call committed, so the other generation still holds the
// residuals from before it.
constexpr uint32_t kHasPrevious = 2;

// A compressor's record of its calls. In device memory.
struct CompressorWords {
  uint32_t current = 0;  // bit 0: the generation that the next call reads; and kHasPrevious
  uint32_t has_failed =
      0;  // 1: the last call that was not halted has failed, its residuals are there
  uint64_t epoch = 0;
  uint64_t age = 0;
  uint64_t nonfinite_calls = 0;
  uint64_t residual_resets = 0;
  uint64_t nonfinite_blocks = 0;  // of low-bit packets, advanced by their kernels
};

// The terms of a sum of packets: each packet times its factor, and the sum divided by `divisor`.
// With neither, packets of signs count for 1 / their number each.
struct PacketTerms {
  const float* factors = nullptr;  // by packet; null: 1
  uint32_t divisor = 1;            // without factors: of packets of codes alone
  bool operator==(const PacketTerms&) const = default;
};

// A run of elements with a packet, or a part of one, of its own. Blocks begin at its first element.
// All pointers are to what belongs to that element, or to the call of the piece: pieces of several
// calls may share a launch.
struct Piece {
  uint64_t count = 0;             // elements
  void* values = nullptr;         // the caller's: read by compression, written by decoding
  const uint8_t* mask = nullptr;  // null, or the byte whose bit 0 belongs to the first element
  float* scales = nullptr;
  uint8_t* bits = nullptr;
  // The residual of a tensor, or of the part of it that this rank serves. Both null: there is none.
  // Equal: one generation, overwritten in place. Kernels that write one do nothing at all if
  // *faults has kHalted, or *decision any failure: the residuals of the failed call must stay,
  // because other ranks may have committed it.
  void* residuals[2] = {nullptr, nullptr};
  // Bit 0 is the index of the generation to read; the other one is written. Null means 0.
  const uint32_t* current = nullptr;
  uint32_t* faults = nullptr;
  const uint32_t* decision = nullptr;  // or null
  // Reduce and average: scales of this piece in the packet of rank 0, and in this rank's own, which
  // lies elsewhere; that of rank r is r * stride behind. kCopy: the elements to be copied, and
  // null.
  const std::byte* source = nullptr;
  const std::byte* own_source = nullptr;
  uint64_t source_bits = 0;  // bytes from there to the piece's bits; any number
  // Tiles of the preceding pieces in the launch. A tile is the work of one warp at a time: a block;
  // with a scale for the whole tensor kTensorSumBlock elements; without a scale to compute, also
  // kTensorSumBlock elements.
  uint32_t first_tile = 0;
  // With a scale for the whole tensor: neighbours with equal numbers share one.
  uint32_t scale = 0;
};

// The most pieces that fit into the parameters of a launch, 32,764 bytes since CUDA 12.1. A launch
// carries its parameters to the device, so there are kernels for short lists, too: a name that ends
// in Few. Their parameters are the beginning of those of the others.
inline constexpr unsigned kMaxPieces = 256;
inline constexpr unsigned kFewPieces = 32;

// Lists of messages and of ended calls may also be in memory of the device, and then have any
// length: kernels for them have names that end in Long. A group so takes a launch for each
// kMaxPieces pieces and a fixed number of others, however many calls it has.
inline constexpr unsigned kInMemory = 0;

template <unsigned kPieces>
struct PieceListOf {
  uint32_t count = 0;
  uint32_t tiles = 0;  // of all pieces
  Piece pieces[kPieces];
};
using PieceList = PieceListOf<kMaxPieces>;

// The packets or elements of all ranks: that of rank r at sources + r * stride, this rank's own at
// own_source.
struct SourcePackets {
  const std::byte* sources = nullptr;
  uint64_t stride = 0;
  const std::byte* own_source = nullptr;
  uint32_t rank = 0;
  uint32_t ranks = 1;
};

// kCompressBlocks: CompressBlocks of every piece, in one pass over memory for blocks of up to 4096
//   elements. Not finite: sets kNonfinite in *faults; packet and residual are then unspecified.
// kCompressSigns: CompressSigns of every piece; tile_sums[tile] is the tile's contribution to the
//   sum. If one of its z is not finite, that is NaN, and kNonfinite is set in *faults.
// kCompressResidual: CompressResidual of every piece, with the scale stored in pieces[i].scales.
struct CompressKind {
  DataType input_type = DataType::kF32;
  DataType scale_type = DataType::kF32;
  DataType residual_type = DataType::kF32;
  bool keeps_residual = true;  // false: it is read, and the new residual is not stored
  ScaleRule rule = ScaleRule::kL2;
  uint32_t block = 0;
  bool operator==(const CompressKind&) const = default;
};
template <unsigned kPieces>
struct CompressParamsOf : CompressKind {
  TileSum* tile_sums = nullptr;  // [tiles], for kCompressSigns
  PieceListOf<kPieces> list;
};
using CompressParams = CompressParamsOf<kMaxPieces>;

// kReduceBlocks, kReduceSigns, kReduceResidual: the same for ReduceInput. block == 0 means one
//   scale per source packet.
// kDecodeAverage: DecodeAverage of every piece. Sets kNonfinite if an output is not finite.
struct ReduceKind {
  PacketTerms terms;    // without factors: the mean of the packets
  uint64_t stride = 0;  // bytes between the packets of ranks
  uint32_t rank = 0;
  uint32_t ranks = 1;
  DataType output_type = DataType::kF32;
  DataType residual_type = DataType::kF32;
  ScaleRule rule = ScaleRule::kL2;
  bool is_sum = false;
  uint32_t block = 0;
  bool operator==(const ReduceKind&) const = default;
};
template <unsigned kPieces>
struct ReduceParamsOf : ReduceKind {
  TileSum* tile_sums = nullptr;
  PieceListOf<kPieces> list;
};
using ReduceParams = ReduceParamsOf<kMaxPieces>;

// kFinishScale: adds the tile sums of the pieces of a scale in index order and writes the scale to
//   pieces[i].scales of each that is not empty. With ranks != 0 it is OutputScale of it. Sets
//   kNonfinite if the sum or the scale is not finite.
struct FinishScaleKind {
  ScaleRule rule = ScaleRule::kL2;
  DataType output_type = DataType::kF32;
  bool is_sum = false;
  uint32_t ranks = 0;  // 0: on a worker
  bool operator==(const FinishScaleKind&) const = default;
};
template <unsigned kPieces>
struct FinishScaleParamsOf : FinishScaleKind {
  const TileSum* tile_sums = nullptr;
  PieceListOf<kPieces> list;
};
using FinishScaleParams = FinishScaleParamsOf<kMaxPieces>;

// kDecode: Decode of every piece. block == 0: one scale.
// kAddDelta: AddDelta of every piece; the held values are its residual, in fp32. Sets kNonfinite if
//   an output is not finite.
struct DecodeKind {
  DataType output_type = DataType::kF32;
  uint32_t block = 0;
  bool operator==(const DecodeKind&) const = default;
};
template <unsigned kPieces>
struct DecodeParamsOf : DecodeKind {
  PieceListOf<kPieces> list;
};
using DecodeParams = DecodeParamsOf<kMaxPieces>;

// kCopy: copies the elements of every piece from `source` to `values`, and 0 outside the mask. Sets
// kNonfinite if a copied element is not finite. The two may be equal.
struct CopyKind {
  DataType type = DataType::kF32;
  bool operator==(const CopyKind&) const = default;
};
template <unsigned kPieces>
struct CopyParamsOf : CopyKind {
  PieceListOf<kPieces> list;
};
using CopyParams = CopyParamsOf<kMaxPieces>;

// kDenseReduce: DenseReduce of sums in fp32; kDenseReduceWords: all others (IsOfWords). The
// elements of rank r are at sources + r * stride, this rank's own at own_source, aligned to their
// size.
struct DenseReduceParams {
  SourcePackets pieces;
  void* output = nullptr;
  DataType type = DataType::kF32;
  DenseOp op = DenseOp::kSum;
  uint64_t count = 0;
  DenseTerms terms;  // its factors in memory of the device
};

// kChecksum: adds the checksum of each span to its *checksum, which must have been zeroed before,
// for example by the previous launch. Spans begin at multiples of 4 bytes.
struct ByteSpan {
  const std::byte* data = nullptr;
  uint64_t bytes = 0;
  Checksum* checksum = nullptr;
};
inline constexpr unsigned kMaxSpans = 64;
struct ChecksumParams {
  // Null, or the word that says which generation of a residual is read: the spans are then in the
  // one that is written while it is 0, and lie `shift` bytes further while it is 1.
  const uint32_t* current = nullptr;
  int64_t shift = 0;
  uint32_t count = 0;
  ByteSpan spans[kMaxSpans];
};

// kLosslessMeasure: words[b], the word of block b (kernels/lossless.h) of what makes `before` the
//   elements.
// kLosslessWrite: ORs the bytes of all blocks into `bytes`, which must have been zeroed.
// kLosslessDecode: makes the elements, which are what the packet was encoded against, what it was
//   made of. Sets kFailed in *faults if a block is none of so many elements.
// Elements have 2 or 4 bytes and are aligned to them.
struct LosslessParams {
  void* elements = nullptr;
  const void* before = nullptr;
  uint64_t count = 0;
  uint32_t width = 0;
  uint32_t* words = nullptr;         // [blocks]
  const uint64_t* starts = nullptr;  // [blocks]: bytes of the blocks before
  uint32_t* bytes = nullptr;         // of all blocks; kLosslessSlack bytes follow
  uint32_t* faults = nullptr;
};

// kLosslessDigest: adds LosslessDigest to *sum.
struct LosslessDigestParams {
  const void* data = nullptr;
  uint64_t bytes = 0;
  unsigned long long* sum = nullptr;
};

// Bytes of a message header, and the positions in it that kernels know (FORMAT.md, "Header").
inline constexpr unsigned kHeaderBytes = 64;

// The part that all headers of one exchange of a call share, and the values that only the device
// knows: how often a captured graph was replayed, and the outcome of the computation.
struct HeaderTemplate {
  alignas(8) uint8_t bytes[kHeaderBytes] = {};
  // Null, or a number to add to the sequence number in `bytes`.
  const uint64_t* sequence = nullptr;
  // Null, or the age to put into the header: 0 for *age == 0, else 1 + (*age - 1) % 255.
  const uint64_t* replica_age = nullptr;
};

// The checksum of a payload while warps add their tiles to it. Zeroed before the launch.
struct PayloadSum {
  Checksum checksum;
  uint32_t tiles = 0;  // of the payload that are in it
};

// Messages of neighbouring ranks. Each is a header, followed by a payload that begins at a multiple
// of 4 bytes unless it is empty. All payloads have one length, and headers lie one stride apart.
struct MessageRun {
  std::byte* header = nullptr;  // of the first message
  int64_t stride = 0;           // bytes from one header to the next
  uint64_t bytes = 0;           // of each payload
  PayloadSum* sums = nullptr;   // [count], unless bytes is 0
  uint32_t peer = 0;            // of the first message; those of the others follow
  uint32_t count = 1;           // messages
};

// Messages of one call whose headers have one template. Those of an exchange with any number of
// ranks are few runs: up to this rank, beyond it, and the shorter last chunk.
inline constexpr unsigned kMostRuns = 3;
struct CallMessages {
  HeaderTemplate filled;  // with what only the device knows still missing
  uint32_t* faults = nullptr;
  uint32_t run_count = 0;
  bool has_verdict = true;  // false: a header must not have the flag of values that are not finite
  MessageRun runs[kMostRuns];
};

// The most messages that fit into the parameters of a launch, and the most in 4 KB of them.
inline constexpr unsigned kMaxCallMessages = 150;
inline constexpr unsigned kFewCallMessages = 18;

template <unsigned kCalls>
struct MessageListOf {
  uint32_t count = 0;
  CallMessages calls[kCalls];
};
using MessageList = MessageListOf<kMaxCallMessages>;
template <>
struct MessageListOf<kInMemory> {
  uint32_t count = 0;
  const CallMessages* calls = nullptr;
};

// kSeal: writes the header of each message from its template, with the checksum of its payload.
//   Sets the flag of values that are not finite if *faults contains only that, and the flag of a
//   failure if it contains anything else: nobody may commit results of a message that failed, and
//   they are no result either.
template <unsigned kCalls>
struct SealParamsOf {
  MessageListOf<kCalls> list;
};
using SealParams = SealParamsOf<kMaxCallMessages>;

// A failure that a kernel found in a message. In pinned host memory; written once, `state` last.
struct MessageFailure {
  uint32_t state = 0;  // 0: none; 1: being written; 2: complete
  uint32_t peer = 0;
  uint32_t kind = 0;  // FailureKind
  uint32_t unused = 0;
  Checksum expected_checksum;  // from the header
  Checksum checksum;           // of the received payload
  uint8_t expected[kHeaderBytes] = {};
  uint8_t received[kHeaderBytes] = {};
};
enum FailureKind : uint32_t {
  kHeaderDiffers = 1,   // another call, or not a header
  kPayloadDiffers = 2,  // wrong checksum of the payload
  kHasFailed = 3,       // the peer only reports that it had a failure
  kFlagUnfit = 4,       // the flag of values that are not finite, where has_verdict is false
};

// kCheck: compares the header of each message with its template: all but the flags, the payload's
//   checksum and the header's own check must be equal. The age may differ if one of the flags of
//   kSeal is set, because nobody then commits the call. The header's check must be right, and the
//   payload's checksum must equal the header's. On a difference sets kFailed in
//   *faults and fills in *failure, the first time; if the header has the flag of a failure, does
//   the same with kPeerFailed. Sets kNonfinite if it has the other flag, or kFailed where that must
//   not be.
template <unsigned kCalls>
struct CheckParamsOf {
  MessageFailure* failure = nullptr;
  MessageListOf<kCalls> list;
};
using CheckParams = CheckParamsOf<kMaxCallMessages>;

// kFillIf: fills each span whose *condition or *decision is not 0. NaNs are quiet and positive.
enum class FillValue : uint32_t { kZeroBytes, kNanF32, kNanF16, kNanBf16 };
struct FillSpan {
  void* data = nullptr;
  uint64_t count = 0;                   // elements; for kZeroBytes bytes
  const uint32_t* condition = nullptr;  // null: always
  const uint32_t* decision = nullptr;   // or null
  FillValue value = FillValue::kZeroBytes;
};
template <unsigned kSpans>
struct FillParamsOf {
  uint32_t count = 0;
  FillSpan spans[kSpans];
};
using FillParams = FillParamsOf<kMaxPieces>;
template <>
struct FillParamsOf<kInMemory> {
  uint32_t count = 0;
  const FillSpan* spans = nullptr;
};

// kCommit: the end of each call of a list.
//   *faults clear: the other generation becomes current (if there are two), epoch and age advance.
//   kNonfinite alone: nonfinite_calls of the words and *nonfinite_calls advance, if not null.
//   kFailed, kPeerFailed: kHalted is set in *halted, if that is not null, and unless the call was
//   halted itself, has_failed of the words.
//   Any of them, with one generation: age becomes 0 and residual_resets advances, as kFillIf has
//   zeroed the residuals.
//   In every case *sequence advances, if it is not null, and *faults becomes 0.
struct EndedCall {
  CompressorWords* words = nullptr;  // or null; of no other call of the list
  uint64_t* sequence = nullptr;      // of the communicator, or of a pair of its ranks
  bool has_two_generations = false;
  // With one rank the result is the input, so a finite call leaves nothing to commit.
  bool is_alone = false;
  uint32_t* faults = nullptr;
  const uint32_t* decision = nullptr;  // or null
};
template <unsigned kCalls>
struct CommitParamsOf {
  // The communicator's.
  uint32_t* halted = nullptr;
  uint64_t* nonfinite_calls = nullptr;  // in pinned memory
  uint32_t count = 0;
  EndedCall calls[kCalls];
};
using CommitParams = CommitParamsOf<kMaxPieces>;
template <>
struct CommitParamsOf<kInMemory> {
  uint32_t* halted = nullptr;
  uint64_t* nonfinite_calls = nullptr;
  uint32_t count = 0;
  const EndedCall* calls = nullptr;
};

}  // namespace onebit::kernels::cuda
