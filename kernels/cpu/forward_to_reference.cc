// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Replaces the SIMD kernels in builds without Highway.
#include <cstring>

#include "kernels/copy.h"
#include "kernels/kernels.h"
#include "kernels/lamb.h"
#include "kernels/low_bit.h"
#include "kernels/optimizer.h"
#include "kernels/sparse.h"
#include "kernels/zero_one.h"

namespace onebit::kernels::cpu {

void CopyPastCaches(void* to, const void* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}
bool CompressBlocks(const CompressInput& in, size_t block, float* scales, uint8_t* bits) {
  return reference::CompressBlocks(in, block, scales, bits);
}
void CompressSigns(const CompressInput& in, uint8_t* bits, TensorSum* sum) {
  reference::CompressSigns(in, bits, sum);
}
void CompressResidual(const CompressInput& in, float scale) {
  reference::CompressResidual(in, scale);
}
float ScaleOf(const TensorSum& sum, ScaleRule rule) { return reference::ScaleOf(sum, rule); }
float OutputScale(float a, size_t ranks, bool is_sum, DataType output_type) {
  return reference::OutputScale(a, ranks, is_sum, output_type);
}
bool ReduceBlocks(const ReduceInput& in, size_t block, float* scales, uint8_t* bits) {
  return reference::ReduceBlocks(in, block, scales, bits);
}
void ReduceSigns(const ReduceInput& in, uint8_t* bits, TensorSum* sum) {
  reference::ReduceSigns(in, bits, sum);
}
void ReduceResidual(const ReduceInput& in, float t) { reference::ReduceResidual(in, t); }
bool DecodeAverage(const ReduceInput& in, size_t block, void* output) {
  return reference::DecodeAverage(in, block, output);
}
bool AddDelta(const DeltaInput& in, size_t block, void* output) {
  return reference::AddDelta(in, block, output);
}
void Decode(const uint8_t* bits, const float* scales, size_t count, size_t block,
            const uint8_t* mask, DataType output_type, void* output) {
  reference::Decode(bits, scales, count, block, mask, output_type, output);
}
void DenseReduce(const void* const* inputs, size_t ranks, size_t count, DataType type, DenseOp op,
                 void* output) {
  reference::DenseReduce(inputs, ranks, count, type, op, output);
}
Checksum ChecksumOf(const void* data, size_t bytes) { return reference::ChecksumOf(data, bytes); }

LowBitResult LowBitCompress(const CompressInput& in, LowBitFormat format, const Draws& draws,
                            LowBitPacket out) {
  return reference::LowBitCompress(in, format, draws, out);
}
LowBitResult LowBitReduce(const LowBitReduceInput& in, LowBitFormat format, const Draws& draws,
                          LowBitPacket out) {
  return reference::LowBitReduce(in, format, draws, out);
}
LowBitResult LowBitAverage(const LowBitReduceInput& in, LowBitFormat format, void* output) {
  return reference::LowBitAverage(in, format, output);
}
LowBitResult LowBitAddDelta(const LowBitDeltaInput& in, LowBitFormat format, void* output) {
  return reference::LowBitAddDelta(in, format, output);
}
LowBitResult LowBitDecode(LowBitPacketView packet, LowBitFormat format, size_t count,
                          const uint8_t* mask, DataType output_type, void* output) {
  return reference::LowBitDecode(packet, format, count, mask, output_type, output);
}

SparseResult SparseCompress(const CompressInput& in, float ef_decay, SparseFormat format,
                            const Draws& draws, void* packet) {
  return reference::SparseCompress(in, ef_decay, format, draws, packet);
}
SparseResult SparseReduce(const SparseReduceInput& in, SparseFormat format, const Draws& draws,
                          void* packet) {
  return reference::SparseReduce(in, format, draws, packet);
}
SparseResult SparseAverage(const SparseReduceInput& in, SparseFormat format, const Draws& draws,
                           void* output) {
  return reference::SparseAverage(in, format, draws, output);
}

void AdamDense(const AdamUpdate& update) { reference::AdamDense(update); }
void AdamFrozen(const AdamUpdate& update) { reference::AdamFrozen(update); }
void LocalMomentum(const float* m, const void* g, DataType g_type, float g_scale, float beta1,
                   float one_minus_beta1, const uint8_t* mask, size_t count, float* out) {
  reference::LocalMomentum(m, g, g_type, g_scale, beta1, one_minus_beta1, mask, count, out);
}
double SumOfSquares(const void* values, DataType type, size_t count) {
  return reference::SumOfSquares(values, type, count);
}
double SumOfMagnitudes(const void* values, DataType type, size_t count) {
  return reference::SumOfMagnitudes(values, type, count);
}
size_t MaskOfNonzero(const float* v, size_t count, uint8_t* mask) {
  return reference::MaskOfNonzero(v, count, mask);
}

LambNorms LambDense(const LambUpdate& update) { return reference::LambDense(update); }
LambNorms LambFrozen(const LambUpdate& update) { return reference::LambFrozen(update); }

void ZeroOneLocal(const ZeroOneUpdate& update) { reference::ZeroOneLocal(update); }
void ZeroOneAccumulate(const ZeroOneUpdate& update, float* out) {
  reference::ZeroOneAccumulate(update, out);
}
void ZeroOneSync(const ZeroOneUpdate& update) { reference::ZeroOneSync(update); }
void RefreshVariance(const float* v, const void* input, DataType type, float input_scale,
                     float beta2, float one_minus_beta2, size_t count, float* out) {
  reference::RefreshVariance(v, input, type, input_scale, beta2, one_minus_beta2, count, out);
}

}  // namespace onebit::kernels::cpu
