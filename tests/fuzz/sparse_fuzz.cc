// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A sparse packet of arbitrary bytes is refused, or adding and reducing it stays in bounds and
// gives NaN only where it has NaN. Arbitrary numbers become a packet that is accepted and decodes
// to finite values but for the blocks that were counted.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "codec/packet.h"
#include "tests/fuzz/input.h"

namespace {

using namespace onebit;

void Check(bool is_true) {
  if (!is_true) std::abort();
}

size_t CountNan(const std::vector<float>& values) {
  size_t count = 0;
  for (const float value : values) count += std::isnan(value) ? 1 : 0;
  return count;
}

// `packet` has exactly the bytes that are promised to the kernels, so that a sanitizer sees an
// access beyond them.
void Use(const std::vector<std::byte>& packet, const PacketFormat& format, size_t count) {
  const kernels::SparseFormat sparse = format.codec.sparse_format();
  const kernels::Draws draws = {.seed = 1, .stream = kernels::kSharedStream};
  const void* const packets[] = {packet.data(), packet.data()};
  std::vector<float> output(count);
  const kernels::SparseResult decoded =
      kernels::cpu::SparseAverage({.packets = packets, .ranks = 1, .count = count, .is_sum = true},
                                  sparse, draws, output.data());
  Check(decoded.nonfinite_blocks <= kernels::BlockCount(count, sparse.block));
  Check((CountNan(output) != 0) == (decoded.nonfinite_blocks != 0));
  Check(CountNan(output) <= sparse.Selected(count));
  kernels::SparseReduceInput in = {.packets = packets, .ranks = 2, .count = count};
  std::vector<float> residual(count, 0.25f);
  in.residual_in = in.residual_out = residual.data();
  std::vector<std::byte> mean(sparse.Bytes(count));
  const kernels::SparseResult result = kernels::cpu::SparseReduce(in, sparse, draws, mean.data());
  PacketFormat plain = format;
  plain.codec.kind = CodecKind::kSparse;
  Check(CheckForm(mean, ShapeOf(count, plain)).ok());
  if (!result.is_finite) return;
  for (const float value : residual) Check(std::isfinite(value));
}

void Encode(const std::vector<std::byte>& bytes, const PacketFormat& format) {
  std::vector<float> input(bytes.size() / sizeof(float));
  if (input.empty()) return;
  std::memcpy(input.data(), bytes.data(), input.size() * sizeof(float));
  const PacketShape shape = ShapeOf(input.size(), format);
  std::vector<std::byte> packet(shape.bytes());
  const kernels::SparseResult result =
      kernels::cpu::SparseCompress({.input = input.data(), .count = input.size()}, 1,
                                   format.codec.sparse_format(), {.seed = 1}, packet.data());
  Check(result.is_finite == (result.nonfinite_blocks == 0));
  Check(CheckForm(packet, shape).ok() || (format.codec.has_feedback() && !result.is_finite));
  Use(packet, format, input.size());
}

}  // namespace

// Byte 0: bit 0 feedback, bit 1 draws, bit 2 fp32, bit 3 unbiased, bit 7 whether the packet is made
// from numbers; 1: block; 2: k; 3 and 4: elements; rest: the packet, cut or filled with zeros, or
// the numbers.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 5) return 0;
  const uint32_t block = 16u * (1 + data[1]);
  const bool is_random = (data[0] & 2) != 0;
  const PacketFormat format = {
      {.kind = (data[0] & 1) != 0 ? CodecKind::kSparseEf : CodecKind::kSparse,
       .sparse = {.k = static_cast<uint16_t>(1 + data[2] * (block - 1) / 255),
                  .values = (data[0] & 4) != 0 ? kernels::SparseValues::kF32
                                               : kernels::SparseValues::kTwoMagnitudes,
                  .is_random = is_random,
                  .is_unbiased = is_random && (data[0] & 8) != 0},
       .block = block}};
  const size_t count = data[3] | (data[4] & 63) << 8;
  const auto bytes = std::as_bytes(std::span(data + 5, size - 5));
  std::vector<std::byte> packet(bytes.begin(), bytes.end());
  if ((data[0] & 128) != 0) {
    Encode(packet, format);
    return 0;
  }
  const PacketShape shape = ShapeOf(count, format);
  packet.resize(shape.bytes());
  const Status status = CheckForm(packet, shape);
  if (!status.ok()) {
    Check(status.code() == Code::kCorrupt && !status.text().empty());
  } else if (count != 0) {
    Use(packet, format, count);
  }
  return 0;
}
