// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls of the low-bit kernels on guarded memory, for either implementation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/low_bit.h"
#include "tests/kernels/guarded_memory.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {

inline constexpr LowBitCodec kAllLowBitCodecs[] = {LowBitCodec::kFp4, LowBitCodec::kInt8,
                                                   LowBitCodec::kUint8, LowBitCodec::kInt2,
                                                   LowBitCodec::kInt8Stochastic};

// Stochastic rounding has no error feedback.
constexpr bool HasResidual(LowBitCodec codec) { return codec != LowBitCodec::kInt8Stochastic; }

// Block lengths of all kinds: odd rows, as far as codes fill whole bytes, and usual ones.
inline std::vector<size_t> ShortBlocks(LowBitCodec codec) {
  switch (CodeBits(codec)) {
    case 8:
      return {7, 32, 96, 1, 128, 256, 33};
    case 4:
      return {10, 32, 96, 2, 128, 256, 34};
    default:
      return {12, 32, 96, 4, 128, 256, 36};
  }
}

// The kernels of one implementation.
struct LowBitKernels {
  decltype(&cpu::LowBitCompress) compress;
  decltype(&cpu::LowBitReduce) reduce;
  decltype(&cpu::LowBitAverage) average;
  decltype(&cpu::LowBitAddDelta) add_delta;
  decltype(&cpu::LowBitDecode) decode;
};
inline constexpr LowBitKernels kCpuLowBit = {cpu::LowBitCompress, cpu::LowBitReduce,
                                             cpu::LowBitAverage, cpu::LowBitAddDelta,
                                             cpu::LowBitDecode};
inline constexpr LowBitKernels kReferenceLowBit = {
    reference::LowBitCompress, reference::LowBitReduce, reference::LowBitAverage,
    reference::LowBitAddDelta, reference::LowBitDecode};

// Packets of several ranks for one piece, with any codes.
struct LowBitPacketCase {
  LowBitFormat format;
  size_t ranks = 1;
  size_t count = 0;
  std::vector<std::vector<uint16_t>> scales;
  std::vector<std::vector<uint16_t>> minimums;
  std::vector<Bytes> codes;
};

inline LowBitPacketCase RandomLowBitPackets(LowBitFormat format, size_t ranks, size_t count,
                                            Numbers numbers, Random& random) {
  LowBitPacketCase c = {.format = format, .ranks = ranks, .count = count};
  const size_t blocks = BlockCount(count, format.block);
  for (size_t rank = 0; rank < ranks; ++rank) {
    c.scales.emplace_back(blocks);
    for (uint16_t& scale : c.scales.back()) scale = RandomBf16(numbers, random) & 0x7FFF;
    c.minimums.emplace_back(HasMinimum(format.codec) ? blocks : 0);
    for (uint16_t& minimum : c.minimums.back()) minimum = RandomBf16(numbers, random);
    c.codes.emplace_back(CodeBytes(format.codec, count));
    for (uint8_t& byte : c.codes.back()) byte = static_cast<uint8_t>(random());
  }
  return c;
}

// All that a call returns and writes.
struct LowBitOutcome {
  LowBitResult result;
  std::vector<uint16_t> scales;
  std::vector<uint16_t> minimums;
  Bytes codes;
  Bytes residual;  // or what is held
  Bytes output;

  friend bool operator==(const LowBitOutcome& a, const LowBitOutcome& b) {
    return a.result.nonfinite_blocks == b.result.nonfinite_blocks &&
           a.result.is_finite == b.result.is_finite && a.scales == b.scales &&
           a.minimums == b.minimums && a.codes == b.codes && a.residual == b.residual &&
           a.output == b.output;
  }
};

// Replaces every NaN by one of them: their signs and payloads are not specified.
inline void MakeNansEqual(DataType type, Bytes* array) {
  if (type == DataType::kF32) {
    auto* bits = reinterpret_cast<uint32_t*>(array->data());
    for (size_t i = 0; i < array->size() / 4; ++i) {
      if ((bits[i] & 0x7FFFFFFF) > 0x7F800000) bits[i] = 0x7FC00000;
    }
    return;
  }
  auto* bits = reinterpret_cast<uint16_t*>(array->data());
  const uint16_t infinity = type == DataType::kF16 ? 0x7C00 : 0x7F80;
  for (size_t i = 0; i < array->size() / 2; ++i) {
    if ((bits[i] & 0x7FFF) > infinity) bits[i] = 0x7FFF;
  }
}

// Clears the residuals of blocks that are not finite, which are not specified.
inline void ClearUnspecified(const std::vector<uint16_t>& scales, size_t block, DataType type,
                             Bytes* residual) {
  const size_t bytes = block * BytesOf(type);
  for (size_t i = 0; i < scales.size(); ++i) {
    if (scales[i] != 0x7FC0) continue;
    const auto begin =
        residual->begin() + static_cast<ptrdiff_t>(std::min(i * bytes, residual->size()));
    const auto end =
        residual->begin() + static_cast<ptrdiff_t>(std::min((i + 1) * bytes, residual->size()));
    std::fill(begin, end, uint8_t{0});
  }
}

class LowBitRunner {
 public:
  explicit LowBitRunner(size_t max_ranks = 0) {
    for (size_t i = 0; i < 3 * max_ranks; ++i) {
      packets_.push_back(std::make_unique<GuardedMemory>(size_t{1} << 17));
    }
  }

  // `in` has the types, the count and flags; arrays are taken from the other arguments.
  LowBitOutcome Compress(const LowBitKernels& kernels, CompressInput in, LowBitFormat format,
                         const Draws& draws, const Bytes& input, const std::optional<Bytes>& mask,
                         const std::optional<Bytes>& residual, bool is_in_place, Edge edge) {
    in.input = input_.Place(input, edge);
    in.mask = mask ? mask_.Place(*mask, edge) : nullptr;
    PlaceResidual(residual, is_in_place, edge, &in);
    return Encode(in.count, format, in.residual_type, in.residual_out, residual, edge,
                  [&](LowBitPacket out) { return kernels.compress(in, format, draws, out); });
  }

  LowBitOutcome Reduce(const LowBitKernels& kernels, LowBitReduceInput in,
                       const LowBitPacketCase& c, const Draws& draws,
                       const std::optional<Bytes>& mask, const std::optional<Bytes>& residual,
                       bool is_in_place, Edge edge) {
    const std::vector<LowBitPacketView> packets = PlacePackets(c, edge);
    in.packets = packets.data();
    in.ranks = c.ranks;
    in.count = c.count;
    in.mask = mask ? mask_.Place(*mask, edge) : nullptr;
    PlaceResidual(residual, is_in_place, edge, &in);
    return Encode(c.count, c.format, in.residual_type, in.residual_out, residual, edge,
                  [&](LowBitPacket out) { return kernels.reduce(in, c.format, draws, out); });
  }

  LowBitOutcome Average(const LowBitKernels& kernels, LowBitReduceInput in,
                        const LowBitPacketCase& c, const std::optional<Bytes>& mask, Edge edge) {
    const std::vector<LowBitPacketView> packets = PlacePackets(c, edge);
    in.packets = packets.data();
    in.ranks = c.ranks;
    in.count = c.count;
    in.mask = mask ? mask_.Place(*mask, edge) : nullptr;
    return Decode(c.count, in.output_type, edge,
                  [&](void* output) { return kernels.average(in, c.format, output); });
  }

  LowBitOutcome DecodeOne(const LowBitKernels& kernels, const LowBitPacketCase& c, DataType type,
                          const std::optional<Bytes>& mask, Edge edge) {
    const std::vector<LowBitPacketView> packets = PlacePackets(c, edge);
    const uint8_t* placed_mask = mask ? mask_.Place(*mask, edge) : nullptr;
    return Decode(c.count, type, edge, [&](void* output) {
      return kernels.decode(packets[0], c.format, c.count, placed_mask, type, output);
    });
  }

  LowBitOutcome AddDelta(const LowBitKernels& kernels, const LowBitPacketCase& c, DataType type,
                         const std::optional<Bytes>& mask, const Bytes& held, bool is_in_place,
                         Edge edge) {
    LowBitDeltaInput in = {.packet = PlacePackets(c, edge)[0],
                           .held_in = reinterpret_cast<const float*>(input_.Place(held, edge)),
                           .mask = mask ? mask_.Place(*mask, edge) : nullptr,
                           .count = c.count,
                           .output_type = type};
    in.held_out =
        is_in_place ? const_cast<float*>(in.held_in)
                    : reinterpret_cast<float*>(residual_out_.Place(Bytes(held.size(), 0xEE), edge));
    // The same without an output, whose memory must not matter.
    LowBitDeltaInput alone = in;
    Bytes held_alone(held.size());
    alone.held_out = reinterpret_cast<float*>(held_alone.data());
    const LowBitResult result_alone = kernels.add_delta(alone, c.format, nullptr);
    LowBitOutcome outcome = Decode(
        c.count, type, edge, [&](void* output) { return kernels.add_delta(in, c.format, output); });
    const auto* bytes = reinterpret_cast<const uint8_t*>(in.held_out);
    outcome.residual.assign(bytes, bytes + held.size());
    MakeNansEqual(DataType::kF32, &outcome.residual);
    MakeNansEqual(DataType::kF32, &held_alone);
    EXPECT_EQ(held_alone, outcome.residual) << "without an output";
    EXPECT_EQ(result_alone.is_finite, outcome.result.is_finite) << "without an output";
    return outcome;
  }

 private:
  std::vector<LowBitPacketView> PlacePackets(const LowBitPacketCase& c, Edge edge) {
    std::vector<LowBitPacketView> packets;
    for (size_t rank = 0; rank < c.ranks; ++rank) {
      packets.push_back({.scales = packets_[3 * rank]->Place(c.scales[rank], edge),
                         .minimums = HasMinimum(c.format.codec)
                                         ? packets_[3 * rank + 1]->Place(c.minimums[rank], edge)
                                         : nullptr,
                         .codes = packets_[3 * rank + 2]->Place(c.codes[rank], edge)});
    }
    return packets;
  }

  template <class In>
  void PlaceResidual(const std::optional<Bytes>& residual, bool is_in_place, Edge edge, In* in) {
    if (!residual) return;
    in->residual_in = residual_in_.Place(*residual, edge);
    in->residual_out = is_in_place ? const_cast<void*>(in->residual_in)
                                   : residual_out_.Place(Bytes(residual->size(), 0xEE), edge);
  }

  template <class Call>
  LowBitOutcome Encode(size_t count, LowBitFormat format, DataType residual_type,
                       const void* residual_out, const std::optional<Bytes>& residual, Edge edge,
                       const Call& call) {
    const size_t blocks = BlockCount(count, format.block);
    const size_t minimum_count = HasMinimum(format.codec) ? blocks : 0;
    const size_t code_bytes = CodeBytes(format.codec, count);
    const LowBitPacket out = {
        .scales = scales_.Place(std::vector<uint16_t>(blocks, 0xEEEE), edge),
        .minimums = minimum_count == 0
                        ? nullptr
                        : minimums_.Place(std::vector<uint16_t>(blocks, 0xEEEE), edge),
        .codes = codes_.Place(Bytes(code_bytes, 0xEE), edge)};
    LowBitOutcome outcome;
    outcome.result = call(out);
    outcome.scales.assign(out.scales, out.scales + blocks);
    if (minimum_count != 0) outcome.minimums.assign(out.minimums, out.minimums + blocks);
    outcome.codes.assign(out.codes, out.codes + code_bytes);
    if (residual) {
      const auto* bytes = static_cast<const uint8_t*>(residual_out);
      outcome.residual.assign(bytes, bytes + residual->size());
      ClearUnspecified(outcome.scales, format.block, residual_type, &outcome.residual);
    }
    return outcome;
  }

  template <class Call>
  LowBitOutcome Decode(size_t count, DataType type, Edge edge, const Call& call) {
    const size_t bytes = count * BytesOf(type);
    uint8_t* output = output_.Place(Bytes(bytes, 0xEE), edge);
    LowBitOutcome outcome;
    outcome.result = call(output);
    outcome.output.assign(output, output + bytes);
    MakeNansEqual(type, &outcome.output);
    return outcome;
  }

  static constexpr size_t kCapacity = size_t{1} << 20;
  GuardedMemory input_{kCapacity}, residual_in_{kCapacity}, residual_out_{kCapacity},
      mask_{kCapacity}, scales_{kCapacity}, minimums_{kCapacity}, codes_{kCapacity},
      output_{kCapacity};
  std::vector<std::unique_ptr<GuardedMemory>> packets_;
};

}  // namespace onebit::kernels
