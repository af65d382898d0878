// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One call of the worker-side kernels on guarded memory, for either implementation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "tests/kernels/guarded_memory.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {

struct CompressCase {
  DataType input_type = DataType::kF32;
  std::optional<DataType> residual_type = DataType::kF32;
  ScaleRule rule = ScaleRule::kL2;
  size_t count = 0;
  size_t block = 4096;  // 0: one scale for all
  Bytes input;
  Bytes residual;
  std::optional<Bytes> mask;
  DataType scale_type = DataType::kF32;  // of block scales
  bool is_residual_kept = true;

  std::string Name() const {
    return "count " + std::to_string(count) + " block " + std::to_string(block) + " input type " +
           std::to_string(static_cast<int>(input_type)) + " residual type " +
           (residual_type ? std::to_string(static_cast<int>(*residual_type)) : "none") +
           (mask ? " masked" : "") + " scale type " + std::to_string(static_cast<int>(scale_type)) +
           (rule == ScaleRule::kL2 ? " l2" : " l1");
  }
};

inline CompressCase RandomCase(DataType input_type, std::optional<DataType> residual_type,
                               bool is_masked, ScaleRule rule, size_t count, size_t block,
                               Numbers numbers, Random& random) {
  CompressCase c = {.input_type = input_type,
                    .residual_type = residual_type,
                    .rule = rule,
                    .count = count,
                    .block = block};
  c.input = RandomElements(input_type, numbers, count, random);
  if (residual_type) c.residual = RandomElements(*residual_type, numbers, count, random);
  if (is_masked) c.mask = RandomBits(count, random);
  return c;
}

struct CompressResult {
  bool is_finite = false;
  std::vector<float> scales;
  Bytes bits;
  Bytes residual;
  friend bool operator==(const CompressResult& a, const CompressResult& b) {
    // Scales as bytes: -0 is not 0, and a NaN is equal to itself.
    return a.is_finite == b.is_finite && a.scales.size() == b.scales.size() &&
           SameBytes(a.scales.data(), b.scales.data(), a.scales.size() * sizeof(float)) &&
           a.bits == b.bits && a.residual == b.residual;
  }
};

// The kernels of one implementation.
struct CompressKernels {
  decltype(&cpu::CompressBlocks) blocks;
  decltype(&cpu::CompressSigns) signs;
  decltype(&cpu::CompressResidual) residual;
  decltype(&cpu::ScaleOf) scale_of;
};
inline constexpr CompressKernels kCpuCompress = {cpu::CompressBlocks, cpu::CompressSigns,
                                                 cpu::CompressResidual, cpu::ScaleOf};
inline constexpr CompressKernels kReferenceCompress = {
    reference::CompressBlocks, reference::CompressSigns, reference::CompressResidual,
    reference::ScaleOf};

class CompressRunner {
 public:
  CompressResult Run(const CompressKernels& kernels, const CompressCase& c, Edge edge,
                     bool is_in_place) {
    const bool has_residual = c.residual_type.has_value();
    CompressInput in;
    in.input = input_.Place(c.input, edge);
    in.input_type = c.input_type;
    in.count = c.count;
    in.rule = c.rule;
    in.scale_type = c.scale_type;
    if (has_residual) {
      in.residual_type = *c.residual_type;
      in.residual_in = residual_in_.Place(c.residual, edge);
      in.residual_out = is_in_place ? const_cast<void*>(in.residual_in)
                                    : residual_out_.Place(Bytes(c.residual.size(), 0xEE), edge);
      if (!c.is_residual_kept) in.residual_out = nullptr;
    }
    if (c.mask) in.mask = mask_.Place(*c.mask, edge);
    CompressResult result;
    result.scales.assign(c.block == 0 ? 1 : BlockCount(c.count, c.block), -1);
    float* scales = scales_.Place(result.scales, edge);
    uint8_t* bits = bits_.Place(Bytes(BitBytes(c.count), 0xEE), edge);
    if (c.block != 0) {
      result.is_finite = kernels.blocks(in, c.block, scales, bits);
    } else {
      TensorSum sum;
      kernels.signs(in, bits, &sum);
      result.is_finite = sum.is_finite;
      scales[0] = kernels.scale_of(sum, c.rule);
      kernels.residual(in, scales[0]);
    }
    result.scales.assign(scales, scales + result.scales.size());
    result.bits.assign(bits, bits + BitBytes(c.count));
    if (has_residual && c.is_residual_kept) {
      const auto* residual = static_cast<const uint8_t*>(in.residual_out);
      result.residual.assign(residual, residual + c.residual.size());
    }
    return result;
  }

 private:
  static constexpr size_t kCapacity = size_t{1} << 18;
  GuardedMemory input_{kCapacity}, residual_in_{kCapacity}, residual_out_{kCapacity},
      mask_{kCapacity}, scales_{kCapacity}, bits_{kCapacity};
};

}  // namespace onebit::kernels
