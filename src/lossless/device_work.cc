// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "lossless/device_work.h"

#include <cstring>
#include <utility>

#include "kernels/lossless.h"

namespace onebit {

using kernels::kLosslessSlack;
using kernels::LosslessWord;
using kernels::cuda::Kernel;

Status DeviceWork::Reserve(Memory* memory, size_t bytes) const {
  if (bytes <= memory->size()) return OkStatus();
  const size_t reserve = bytes + bytes / 2;
  *memory = Memory();
  ONEBIT_ASSIGN_OR_RETURN(*memory,
                          Memory::Create(location_, &devices_, reserve, "the changes of a tensor"));
  return OkStatus();
}

Result<uint64_t> DeviceWork::DigestOf(const void* elements, size_t bytes) {
  if (bytes == 0) return uint64_t{0};
  ONEBIT_ASSIGN_OR_RETURN(const auto scope, Enter());
  unsigned long long digest = 0;
  ONEBIT_TRY(Reserve(&result_, sizeof(digest)));
  ONEBIT_TRY(devices_.Fill(result_.data(), 0, sizeof(digest), stream_));
  const kernels::cuda::LosslessDigestParams params = {
      elements, bytes, reinterpret_cast<unsigned long long*>(result_.data())};
  ONEBIT_TRY(devices_.Launch(Kernel::kLosslessDigest, &params, stream_));
  ONEBIT_TRY(devices_.Copy(&digest, result_.data(), sizeof(digest), stream_));
  ONEBIT_TRY(Synchronize());
  return uint64_t{digest};
}

Result<uint64_t> DeviceWork::PlaceBlocks() {
  host_starts_.resize(host_words_.size());
  uint64_t end = 0;
  for (size_t block = 0; block < host_words_.size(); ++block) {
    host_starts_[block] = end;
    end += LosslessWord::Unpack(host_words_[block]).bytes;
  }
  const size_t bytes = host_starts_.size() * sizeof(uint64_t);
  ONEBIT_TRY(Reserve(&starts_, bytes));
  ONEBIT_TRY(devices_.Copy(starts_.data(), host_starts_.data(), bytes, stream_));
  return end;
}

Result<std::optional<std::span<const std::byte>>> DeviceWork::Encode(const void* now,
                                                                     const void* before,
                                                                     size_t count, size_t width) {
  using Packet = std::optional<std::span<const std::byte>>;
  ONEBIT_ASSIGN_OR_RETURN(const auto scope, Enter());
  host_words_.resize(kernels::LosslessBlocks(count));
  const size_t word_bytes = host_words_.size() * sizeof(uint32_t);
  ONEBIT_TRY(Reserve(&words_, word_bytes));
  kernels::cuda::LosslessParams params = {.elements = const_cast<void*>(now),
                                          .before = before,
                                          .count = count,
                                          .width = static_cast<uint32_t>(width),
                                          .words = reinterpret_cast<uint32_t*>(words_.data())};
  ONEBIT_TRY(devices_.Launch(Kernel::kLosslessMeasure, &params, stream_));
  ONEBIT_TRY(devices_.Copy(host_words_.data(), words_.data(), word_bytes, stream_));
  ONEBIT_TRY(Synchronize());
  ONEBIT_ASSIGN_OR_RETURN(const uint64_t end, PlaceBlocks());
  const size_t bytes = word_bytes + end;
  if (bytes >= count * width) {
    ONEBIT_TRY(Synchronize());
    return Packet();
  }
  ONEBIT_TRY(Reserve(&bytes_, end + kLosslessSlack));
  ONEBIT_TRY(devices_.Fill(bytes_.data(), 0, end + kLosslessSlack, stream_));
  params.starts = reinterpret_cast<const uint64_t*>(starts_.data());
  params.bytes = reinterpret_cast<uint32_t*>(bytes_.data());
  ONEBIT_TRY(devices_.Launch(Kernel::kLosslessWrite, &params, stream_));
  if (bytes > packet_.size()) {
    packet_ = AlignedBuffer();
    ONEBIT_ASSIGN_OR_RETURN(packet_,
                            AlignedBuffer::Create(bytes + bytes / 2, "the changes of a tensor"));
  }
  if (word_bytes != 0) std::memcpy(packet_.data(), host_words_.data(), word_bytes);
  ONEBIT_TRY(devices_.Copy(packet_.data() + word_bytes, bytes_.data(), end, stream_));
  ONEBIT_TRY(Synchronize());
  return Packet({packet_.data(), bytes});
}

Result<bool> DeviceWork::Decode(std::span<const std::byte> packet, size_t count, size_t width,
                                void* copy) {
  ONEBIT_ASSIGN_OR_RETURN(const auto scope, Enter());
  host_words_.resize(kernels::LosslessBlocks(count));
  const size_t word_bytes = host_words_.size() * sizeof(uint32_t);
  if (packet.size() < word_bytes) return false;
  std::memcpy(host_words_.data(), packet.data(), word_bytes);
  const std::span blocks = packet.subspan(word_bytes);
  ONEBIT_ASSIGN_OR_RETURN(const uint64_t end, PlaceBlocks());
  uint32_t faults = 0;
  if (end == blocks.size()) {
    ONEBIT_TRY(Reserve(&words_, word_bytes));
    ONEBIT_TRY(Reserve(&bytes_, end + kLosslessSlack));
    ONEBIT_TRY(Reserve(&result_, sizeof(faults)));
    ONEBIT_TRY(devices_.Copy(words_.data(), packet.data(), word_bytes, stream_));
    ONEBIT_TRY(devices_.Copy(bytes_.data(), blocks.data(), end, stream_));
    ONEBIT_TRY(devices_.Fill(result_.data(), 0, sizeof(faults), stream_));
    const kernels::cuda::LosslessParams params = {
        .elements = copy,
        .count = count,
        .width = static_cast<uint32_t>(width),
        .words = reinterpret_cast<uint32_t*>(words_.data()),
        .starts = reinterpret_cast<const uint64_t*>(starts_.data()),
        .bytes = reinterpret_cast<uint32_t*>(bytes_.data()),
        .faults = reinterpret_cast<uint32_t*>(result_.data())};
    ONEBIT_TRY(devices_.Launch(Kernel::kLosslessDecode, &params, stream_));
    ONEBIT_TRY(devices_.Copy(&faults, result_.data(), sizeof(faults), stream_));
  }
  ONEBIT_TRY(Synchronize());
  return end == blocks.size() && faults == 0;
}

Status DeviceWork::Copy(void* to, const void* from, size_t bytes) {
  ONEBIT_ASSIGN_OR_RETURN(const auto scope, Enter());
  ONEBIT_TRY(devices_.Copy(to, from, bytes, stream_));
  return Synchronize();
}

}  // namespace onebit
