// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A packet of arbitrary bytes and shape: it is refused, or decoding and reducing it stays in bounds
// and gives finite values or reports that it did not.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "codec/packet.h"

namespace {

using namespace onebit;

// Buffers have exactly the sizes promised to the kernels, so that a sanitizer sees an access beyond
// them.
void DecodePacket(const std::vector<std::byte>& packet, PacketShape shape, size_t block) {
  std::vector<float> scales(shape.scale_count);
  std::memcpy(scales.data(), packet.data(), shape.scale_bytes());
  const std::vector<uint8_t> bits(
      reinterpret_cast<const uint8_t*>(packet.data()) + shape.scale_bytes(),
      reinterpret_cast<const uint8_t*>(packet.data()) + packet.size());
  std::vector<float> output(shape.element_count);
  kernels::cpu::Decode(bits.data(), scales.data(), shape.element_count, block, nullptr,
                       kernels::DataType::kF32, output.data());
  for (float value : output) {
    if (!std::isfinite(value)) std::abort();
  }
  if (block == 0) return;
  const uint8_t* all_bits[] = {bits.data(), bits.data()};
  const float* all_scales[] = {scales.data(), scales.data()};
  std::vector<float> residual(shape.element_count, 0.25f);
  const kernels::ReduceInput in = {
      .bits = all_bits,
      .scales = all_scales,
      .ranks = 2,
      .residual_in = residual.data(),
      .residual_out = residual.data(),
      .count = shape.element_count,
  };
  std::vector<float> mean_scales(shape.scale_count);
  std::vector<uint8_t> mean_bits(kernels::BitBytes(shape.element_count));
  if (!kernels::cpu::ReduceBlocks(in, block, mean_scales.data(), mean_bits.data())) return;
  for (float value : residual) {
    if (!std::isfinite(value)) std::abort();
  }
}

}  // namespace

// Bytes 0-1: elements; 2: blocks of 64, 0 for tensor; 3: bit 0 a right checksum, bit 1 non-finite
// flag, bit 2 any size, bit 3 a weight, bit 4 nothing else; rest: the packet, cut or filled with
// zeros.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  const size_t elements = data[0] | data[1] << 8;
  const size_t block = size_t{64} * data[2];
  const bool has_right_checksum = (data[3] & 1) != 0;
  const bool is_nonfinite = (data[3] & 2) != 0;
  const bool has_right_size = (data[3] & 4) == 0;
  const bool is_weighted = (data[3] & 8) != 0;
  const bool is_absent = is_weighted && (data[3] & 16) != 0;
  const PacketShape shape = ShapeOf(
      elements, {{.kind = CodecKind::kSign, .block = static_cast<uint32_t>(block)}, is_weighted});
  const auto bytes = std::as_bytes(std::span(data + 4, size - 4));
  std::vector<std::byte> packet(bytes.begin(), bytes.end());
  if (has_right_size) packet.resize(is_absent ? kWeightBytes : shape.bytes());
  kernels::Checksum checksum = {.sum = 1, .weighted = 2};
  if (has_right_checksum) checksum = kernels::cpu::ChecksumOf(packet.data(), packet.size());
  const Status status = CheckPacket(packet, shape, is_nonfinite, checksum);
  if (!status.ok()) {
    if (status.code() != Code::kCorrupt || status.text().empty()) std::abort();
    return 0;
  }
  if (is_nonfinite) return 0;
  if (is_weighted) {
    const float weight = WeightOf(packet.data());
    if (!std::isfinite(weight) || weight < 0) std::abort();
    if (packet.size() != shape.bytes() && weight != 0) std::abort();
    packet.erase(packet.begin(), packet.begin() + kWeightBytes);
    if (packet.empty()) return 0;
  }
  if (elements != 0) DecodePacket(packet, ShapeOf(elements, block), block);
  return 0;
}
