// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "codec/lossless_packet.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace onebit {

using kernels::kLosslessBlock;
using kernels::kLosslessSlack;
using kernels::LosslessBlocks;
using kernels::LosslessWord;

Status LosslessEncoder::Grow(size_t bytes, size_t most) {
  if (bytes <= packet_.size()) return OkStatus();
  ONEBIT_ASSIGN_OR_RETURN(AlignedBuffer larger,
                          AlignedBuffer::Create(std::max(bytes, std::min(most, bytes + bytes / 2)),
                                                "the changes of a tensor"));
  if (used_ != 0) std::memcpy(larger.data(), packet_.data(), used_);
  packet_ = std::move(larger);
  return OkStatus();
}

Result<LosslessPacket> LosslessEncoder::Encode(const void* now, const void* before, size_t count,
                                               size_t width) {
  if (scratch_ == nullptr) {
    scratch_.reset(new (std::nothrow) kernels::LosslessScratch);
    if (scratch_ == nullptr) return Error(Code::kOutOfMemory, "no memory to find changes in");
  }
  const size_t full = count * width;
  const size_t most = full + kLosslessBlock * width + kLosslessSlack;
  used_ = 0;
  ONEBIT_TRY(Grow(LosslessBlocks(count) * sizeof(uint32_t) + kLosslessSlack, most));
  used_ = LosslessBlocks(count) * sizeof(uint32_t);
  for (size_t block = 0; block < LosslessBlocks(count); ++block) {
    if (used_ >= full) break;
    const size_t begin = block * kLosslessBlock;
    const size_t elements = std::min(kLosslessBlock, count - begin);
    ONEBIT_TRY(Grow(used_ + elements * width + kLosslessSlack, most));
    const auto at = [&](const void* from) {
      return static_cast<const std::byte*>(from) + begin * width;
    };
    const LosslessWord word =
        kernels::cpu::LosslessEncode(at(now), at(before), elements, width, scratch_.get(),
                                     reinterpret_cast<uint8_t*>(packet_.data() + used_));
    const uint32_t packed = word.Pack();
    std::memcpy(packet_.data() + block * sizeof(packed), &packed, sizeof(packed));
    used_ += word.bytes;
  }
  if (used_ >= full) {
    packet_ = AlignedBuffer();  // as long as the tensor, and of no use
    return LosslessPacket();
  }
  return LosslessPacket({packet_.data(), used_});
}

bool DecodeLossless(std::span<const std::byte> packet, size_t count, size_t width, void* copy) {
  const size_t blocks = LosslessBlocks(count);
  if (packet.size() < blocks * sizeof(uint32_t)) return false;
  std::span<const std::byte> rest = packet.subspan(blocks * sizeof(uint32_t));
  for (size_t block = 0; block < blocks; ++block) {
    uint32_t packed = 0;
    std::memcpy(&packed, packet.data() + block * sizeof(packed), sizeof(packed));
    const LosslessWord word = LosslessWord::Unpack(packed);
    if (word.bytes > rest.size()) return false;
    const size_t begin = block * kLosslessBlock;
    if (!kernels::cpu::LosslessDecode(word, reinterpret_cast<const uint8_t*>(rest.data()),
                                      std::min(kLosslessBlock, count - begin), width,
                                      static_cast<std::byte*>(copy) + begin * width)) {
      return false;
    }
    rest = rest.subspan(word.bytes);
  }
  return rest.empty();
}

}  // namespace onebit
