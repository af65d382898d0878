// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Server side: decodes and averages the packets of all ranks, and compresses the mean again.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/reduce.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/encode-inl.h"
#include "kernels/cpu/packets-inl.h"
#include "kernels/kernels.h"
#include "kernels/reference/fp_env.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

namespace {

// A `Source` (encode-inl.h) whose z is y: the mean of all packets plus a residual.
struct PacketSource {
  static constexpr size_t kPart = kComputedPart;

  const ReduceInput& in;
  size_t block;  // 0: one scale per packet
  TileSweeps sweeps;

  PacketSource(const ReduceInput& input, size_t block_elements)
      : in(input),
        block(block_elements),
        sweeps(SweepsOf<DataType::kF32>(ResidualOf(in), in.mask != nullptr, in.rule)) {}

  TileInput TileAt(size_t begin, size_t count, float* space) const {
    SumPackets(PacketsOf(in), begin, count, block == 0 ? 0 : begin / block, space,
               {.to = space, .is_streamed = false});
    return {.input = space,
            .residual = At(in.residual_in, in.residual_type, begin),
            .mask = nullptr,
            .count = count};
  }

  float SentScale(float a) const { return RoundedScale(a, in.ranks, in.is_sum, in.output_type); }
  float LostScale(float t) const { return in.is_sum ? t / static_cast<float>(in.ranks) : t; }

  static float RoundedScale(float a, size_t ranks, bool is_sum, DataType output_type) {
    return RoundTo(output_type, is_sum ? static_cast<float>(ranks) * a : a);
  }
};

}  // namespace

float OutputScale(float a, size_t ranks, bool is_sum, DataType output_type) {
  return PacketSource::RoundedScale(a, ranks, is_sum, output_type);
}

bool ReduceBlocks(const ReduceInput& in, size_t block, float* scales, uint8_t* bits) {
  return EncodeBlocks(PacketSource(in, block), block, scales, bits);
}

void ReduceSigns(const ReduceInput& in, uint8_t* bits, TensorSum* sum) {
  EncodeSigns(PacketSource(in, 0), bits, sum);
}

void ReduceResidual(const ReduceInput& in, float t) {
  const PacketSource source(in, 0);
  EncodeResidual(source, source.LostScale(t));
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onebit::kernels::cpu {

HWY_EXPORT(OutputScale);
HWY_EXPORT(ReduceBlocks);
HWY_EXPORT(ReduceSigns);
HWY_EXPORT(ReduceResidual);

float OutputScale(float a, size_t ranks, bool is_sum, DataType output_type) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(OutputScale)(a, ranks, is_sum, output_type);
}

bool ReduceBlocks(const ReduceInput& in, size_t block, float* scales, uint8_t* bits) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(ReduceBlocks)(in, block, scales, bits);
}

void ReduceSigns(const ReduceInput& in, uint8_t* bits, TensorSum* sum) {
  const reference::FpEnvironment fp;
  HWY_DYNAMIC_DISPATCH(ReduceSigns)(in, bits, sum);
}

void ReduceResidual(const ReduceInput& in, float t) {
  const reference::FpEnvironment fp;
  HWY_DYNAMIC_DISPATCH(ReduceResidual)(in, t);
}

}  // namespace onebit::kernels::cpu
#endif  // HWY_ONCE
