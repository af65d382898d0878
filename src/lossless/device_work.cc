// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "lossless/device_work.h"

#include <algorithm>
#include <cstring>

#include "kernels/lossless.h"

namespace onebit {

using kernels::kLosslessSlack;
using kernels::LosslessWord;
using kernels::cuda::Kernel;

namespace {

constexpr char kPurpose[] = "the changes of a tensor";

}  // namespace

// A copy to pageable memory returns when the stream has reached it. Without work before the call
// that is soon.
Status DeviceWork::Begin(onebitStream_t stream, uint64_t timeout_ms) {
  stream_ = stream;
  timeout_ms_ = timeout_ms;
  ONEBIT_ASSIGN_OR_RETURN(const auto scope, Enter());
  return Synchronize();
}

Status DeviceWork::Create(Memory* memory, size_t bytes) const {
  if (bytes <= memory->size()) return OkStatus();
  ONEBIT_ASSIGN_OR_RETURN(*memory, Memory::Create(location_, &devices_, bytes, kPurpose));
  return OkStatus();
}

Status DeviceWork::Reserve(GrowableBuffer* memory, size_t bytes, size_t most) const {
  return memory->Reserve(bytes, [&](size_t with_reserve) {
    return Memory::Create(location_, &devices_, std::min(with_reserve, most), kPurpose);
  });
}

Status DeviceWork::FindDigests(const void* elements, size_t bytes, std::span<uint64_t> digests) {
  const size_t result_bytes = digests.size_bytes();
  if (bytes == 0) std::fill(digests.begin(), digests.end(), 0);
  if (bytes == 0 || digests.empty()) return OkStatus();
  ONEBIT_ASSIGN_OR_RETURN(const auto scope, Enter());
  ONEBIT_TRY(Reserve(&digests_, result_bytes, result_bytes));
  ONEBIT_TRY(devices_.Fill(digests_.data(), 0, result_bytes, stream_));
  for (size_t k = 0; k < digests.size(); ++k) {
    const kernels::cuda::LosslessDigestParams params = {
        static_cast<const std::byte*>(elements) + k * bytes, bytes,
        reinterpret_cast<unsigned long long*>(digests_.data()) + k};
    ONEBIT_TRY(devices_.Launch(Kernel::kLosslessDigest, &params, stream_));
  }
  host_digests_.resize(digests.size());
  ONEBIT_TRY(devices_.Copy(host_digests_.data(), digests_.data(), result_bytes, stream_));
  ONEBIT_TRY(Synchronize());
  std::copy(host_digests_.begin(), host_digests_.end(), digests.begin());
  return OkStatus();
}

uint64_t DeviceWork::PlaceBlocks() {
  host_starts_.resize(host_words_.size());
  uint64_t end = 0;
  for (size_t block = 0; block < host_words_.size(); ++block) {
    host_starts_[block] = end;
    end += LosslessWord::Unpack(host_words_[block]).bytes;
  }
  return end;
}

Status DeviceWork::CopyStarts(kernels::cuda::LosslessParams* params) {
  const size_t bytes = host_starts_.size() * sizeof(uint64_t);
  ONEBIT_TRY(Create(&starts_, bytes));
  ONEBIT_TRY(devices_.Copy(starts_.data(), host_starts_.data(), bytes, stream_));
  params->starts = reinterpret_cast<const uint64_t*>(starts_.data());
  params->bytes = reinterpret_cast<uint32_t*>(bytes_.data());
  return OkStatus();
}

Result<LosslessPacket> DeviceWork::Encode(const void* now, const void* before, size_t count,
                                          size_t width) {
  ONEBIT_ASSIGN_OR_RETURN(const auto scope, Enter());
  host_words_.resize(kernels::LosslessBlocks(count));
  const size_t word_bytes = host_words_.size() * sizeof(uint32_t);
  ONEBIT_TRY(Create(&words_, word_bytes));
  kernels::cuda::LosslessParams params = {.elements = const_cast<void*>(now),
                                          .before = before,
                                          .count = count,
                                          .width = static_cast<uint32_t>(width),
                                          .words = reinterpret_cast<uint32_t*>(words_.data())};
  ONEBIT_TRY(devices_.Launch(Kernel::kLosslessMeasure, &params, stream_));
  ONEBIT_TRY(devices_.Copy(host_words_.data(), words_.data(), word_bytes, stream_));
  ONEBIT_TRY(Synchronize());
  const uint64_t end = PlaceBlocks();
  const size_t full = count * width;
  const size_t bytes = word_bytes + end;
  if (bytes >= full) return LosslessPacket();
  if (bytes > packet_.size()) {
    packet_ = AlignedBuffer();
    ONEBIT_ASSIGN_OR_RETURN(packet_,
                            AlignedBuffer::Create(std::min(bytes + bytes / 2, full), kPurpose));
  }
  if (word_bytes != 0) std::memcpy(packet_.data(), host_words_.data(), word_bytes);
  if (end != 0) {
    ONEBIT_TRY(Reserve(&bytes_, end + kLosslessSlack, full + kLosslessSlack));
    ONEBIT_TRY(devices_.Fill(bytes_.data(), 0, end + kLosslessSlack, stream_));
    ONEBIT_TRY(CopyStarts(&params));
    ONEBIT_TRY(devices_.Launch(Kernel::kLosslessWrite, &params, stream_));
    ONEBIT_TRY(devices_.Copy(packet_.data() + word_bytes, bytes_.data(), end, stream_));
    ONEBIT_TRY(Synchronize());
  }
  return LosslessPacket({packet_.data(), bytes});
}

Result<bool> DeviceWork::Decode(std::span<const std::byte> packet, size_t count, size_t width,
                                void* copy) {
  host_words_.resize(kernels::LosslessBlocks(count));
  const size_t word_bytes = host_words_.size() * sizeof(uint32_t);
  if (packet.size() < word_bytes) return false;
  if (word_bytes != 0) std::memcpy(host_words_.data(), packet.data(), word_bytes);
  const std::span blocks = packet.subspan(word_bytes);
  if (PlaceBlocks() != blocks.size()) return false;
  const auto is_zero = [](uint32_t word) { return word == 0; };
  if (std::all_of(host_words_.begin(), host_words_.end(), is_zero)) return true;  // no changes
  ONEBIT_ASSIGN_OR_RETURN(const auto scope, Enter());
  ONEBIT_TRY(Create(&words_, word_bytes));
  ONEBIT_TRY(Reserve(&bytes_, blocks.size() + kLosslessSlack, count * width + kLosslessSlack));
  ONEBIT_TRY(Create(&faults_, sizeof(host_faults_)));
  kernels::cuda::LosslessParams params = {.elements = copy,
                                          .count = count,
                                          .width = static_cast<uint32_t>(width),
                                          .words = reinterpret_cast<uint32_t*>(words_.data()),
                                          .faults = reinterpret_cast<uint32_t*>(faults_.data())};
  ONEBIT_TRY(devices_.Copy(words_.data(), host_words_.data(), word_bytes, stream_));
  ONEBIT_TRY(devices_.Copy(bytes_.data(), blocks.data(), blocks.size(), stream_));
  ONEBIT_TRY(devices_.Fill(faults_.data(), 0, sizeof(host_faults_), stream_));
  ONEBIT_TRY(CopyStarts(&params));
  ONEBIT_TRY(devices_.Launch(Kernel::kLosslessDecode, &params, stream_));
  ONEBIT_TRY(devices_.Copy(&host_faults_, faults_.data(), sizeof(host_faults_), stream_));
  ONEBIT_TRY(Synchronize());
  return host_faults_ == 0;
}

Status DeviceWork::Copy(void* to, const void* from, size_t bytes) {
  if (to == from) return OkStatus();
  ONEBIT_ASSIGN_OR_RETURN(const auto scope, Enter());
  ONEBIT_TRY(devices_.Copy(to, from, bytes, stream_));
  return Synchronize();
}

}  // namespace onebit
