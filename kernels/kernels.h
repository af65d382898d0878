// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The arithmetic of compression: numbers to signs and scales, and back. Pure functions on memory
// that the caller owns; they allocate nothing and call no other code.
//
// Two implementations have exactly these signatures and the same results to the bit:
// `kernels::reference` (scalar, the oracle) and `kernels::cpu` (Google Highway, dispatched to the
// best instruction set of this processor at run time). src/codec/FORMAT.md specifies the
// arithmetic.
//
// Common rules
//   * z = input + residual_in, in fp32. A set bit means z < 0; +0 and -0 are positive. Element i is
//     bit i mod 8 of byte i / 8. The bits of `count` elements take BitBytes(count) bytes; the
//     unused bits of the last byte are written as 0.
//   * `block` is a positive multiple of kBlockMultiple. Blocks start at element 0 of the piece that
//     is passed in; the last one may be shorter.
//   * A mask, if not null, has one bit per element in the same order; a clear bit takes the element
//     out: its z is 0, its sign positive, its new residual 0, its output 0, and it is in no N. Its
//     input value is ignored, even if it is NaN.
//   * N of a scale is the number of elements that take part; N = 0 gives the scale 0.
//   * A z counts as finite if it is, and with a bf16 residual only if it is below 2^127: then no
//     residual can round to infinity.
//   * Pointers need only the alignment of their element type; `bits` and `mask` need none. Nothing
//     outside of the sizes given is read or written. residual_out may equal residual_in; otherwise
//     no output may overlap an input.
//   * The caller's floating-point control register does not matter: it is saved, set to
//     round-to-nearest with denormals kept, and restored.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/types.h"

namespace onebit::kernels {

// Input of the worker side. Sign mode has no residual: both pointers are null. If only residual_out
// is null, the residual is read and the new one is not stored.
struct CompressInput {
  const void* input = nullptr;  // count elements of input_type
  DataType input_type = DataType::kF32;
  const void* residual_in = nullptr;        // count elements of residual_type, or null
  void* residual_out = nullptr;             // count elements; null when residual_in is
  DataType residual_type = DataType::kF32;  // kF32 or kBf16 (rounded to nearest even)
  const uint8_t* mask = nullptr;
  size_t count = 0;
  ScaleRule rule = ScaleRule::kL2;
  // The type that scales are rounded to before they are stored and residuals are formed: the
  // output's type if the scales reach an output without another compression.
  DataType scale_type = DataType::kF32;
};

// Input of the server side: the packets of all ranks for one piece, in rank order.
//   w_r = scale_r / ranks in fp32;  y = ((+-w_0 +- w_1) +- ...) + residual_in, left to right in
//   fp32.
struct ReduceInput {
  const uint8_t* const* bits = nullptr;  // [ranks] sign bits of `count` elements
  const float* const* scales = nullptr;  // [ranks] one scale per block, or one scale in tensor mode
  size_t ranks = 0;
  const void* residual_in = nullptr;  // null in sign mode
  void* residual_out = nullptr;
  DataType residual_type = DataType::kF32;
  const uint8_t* mask = nullptr;
  size_t count = 0;
  ScaleRule rule = ScaleRule::kL2;
  DataType output_type = DataType::kF32;
  bool is_sum = false;  // false: the collective returns the mean, true: the sum over ranks
};
// The scale a server sends is in units of the result. With a = the scale of y computed by `rule`
// and rounded to fp32:
//   mean: t = round_to_output_type(a),          residual_out = y - t * sigma(y)
//   sum:  t = round_to_output_type(ranks * a),  residual_out = y - (t / ranks) * sigma(y)
// (products and quotients in fp32). t is stored as fp32, and decoding is +-t without arithmetic, so
// the residual contains all that rounding to the output type loses.

// A packet of differences between values and the copies of them that every rank holds. Held copies
// are stored negated, which makes them the residual of CompressInput: z = x + held is the missing
// part.
struct DeltaInput {
  const uint8_t* bits = nullptr;
  const float* scales = nullptr;
  const float* held_in = nullptr;  // count elements
  float* held_out = nullptr;       // count elements; may equal held_in
  const uint8_t* mask = nullptr;
  size_t count = 0;
  DataType output_type = DataType::kF32;
};

// Sum of a tensor whose scale spans several calls. Starts zeroed; each call adds its
// kTensorSumBlock-element block sums in index order, in fp64.
struct TensorSum {
  double sum = 0;
  size_t element_count = 0;  // elements that took part so far
  bool is_finite = true;     // every z so far was finite
};

struct Checksum {
  uint32_t sum = 0;       // sum of the little-endian 32-bit words w_i, modulo 2^32
  uint32_t weighted = 0;  // sum of (i + 1) * w_i, modulo 2^32
  friend bool operator==(const Checksum&, const Checksum&) = default;
};

#define ONEBIT_KERNELS_DECLARE                                                                   \
  /* Worker, block scales: writes BlockCount(count, block) scales, the bits and residual_out.    \
     Reads input and residual once, writes the residual and count/8 bytes. Returns whether every \
     z and scale was finite; if not, the outputs are unspecified (but in bounds). */             \
  bool CompressBlocks(const CompressInput& in, size_t block, float* scales, uint8_t* bits);      \
  /* Worker, tensor scale, first pass: bits, and the sum. */                                     \
  void CompressSigns(const CompressInput& in, uint8_t* bits, TensorSum* sum);                    \
  /* Worker, tensor scale, second pass: residual_out = z - scale * sigma(z). */                  \
  void CompressResidual(const CompressInput& in, float scale);                                   \
  /* The scale of a finished sum: (float)sqrt(sum/N) or (float)(sum/N), in fp64. */              \
  float ScaleOf(const TensorSum& sum, ScaleRule rule);                                           \
  /* The server's t of the scale `a`; infinite when it does not fit the output type. */          \
  float OutputScale(float a, size_t ranks, bool is_sum, DataType output_type);                   \
  /* Server, block scales (`in.scales[r]` has one per block): decode, average, compress. Returns \
     whether every y and every t was finite. */                                                  \
  bool ReduceBlocks(const ReduceInput& in, size_t block, float* scales, uint8_t* bits);          \
  /* Server, tensor scale (`in.scales[r]` has one): first pass, bits and the sum of y. */        \
  void ReduceSigns(const ReduceInput& in, uint8_t* bits, TensorSum* sum);                        \
  /* Server, tensor scale: second pass with t = OutputScale(...). */                             \
  void ReduceResidual(const ReduceInput& in, float t);                                           \
  /* Mean of the packets of all ranks without compressing again: output[i] = y_i in fp32, times  \
     ranks when is_sum, rounded once to output_type (residual pointers must be null). block ==   \
     0: one scale per packet. Returns whether every output is finite. */                         \
  bool DecodeAverage(const ReduceInput& in, size_t block, void* output);                         \
  /* held_out = held_in - (bit ? -t : t), 0 outside the mask; output = 0 - held_out, rounded     \
     once to output_type; a null output is not written. block == 0: one scale. Reads and writes  \
     what is held once. Returns whether every output is, or would be, finite. */                 \
  bool AddDelta(const DeltaInput& in, size_t block, void* output);                               \
  /* output[i] = bit ? -t : t, t the scale of its block (block == 0: scales[0]) rounded to       \
     output_type. */                                                                             \
  void Decode(const uint8_t* bits, const float* scales, size_t count, size_t block,              \
              const uint8_t* mask, DataType output_type, void* output);                          \
  /* Reduces `ranks` buffers in their order. Sums of floats are fp32 (of kF64 fp64), divided by  \
     `ranks` if kAverage, rounded once to `type`. Sums of integers wrap, and their quotients are \
     truncated. kMax and kMin return one of the elements: the first NaN if there is one, and -0  \
     is below +0. output may equal any input, unless it is of another type. */                   \
  void DenseReduce(const void* const* inputs, size_t ranks, size_t count, DataType type,         \
                   DenseOp op, void* output, const DenseTerms& terms = {});                      \
  /* Checksum of `bytes` bytes; the last word is padded with zero bytes. */                      \
  Checksum ChecksumOf(const void* data, size_t bytes);

ONEBIT_DECLARE_TWICE(ONEBIT_KERNELS_DECLARE)

#undef ONEBIT_KERNELS_DECLARE

}  // namespace onebit::kernels
