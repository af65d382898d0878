// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "lossless/element_work.h"

#include <cstring>
#include <new>

#include "lossless/device_work.h"

namespace onebit {
namespace {

class HostWork final : public ElementWork {
 public:
  Status FindDigests(const void* elements, size_t bytes, std::span<uint64_t> digests) override {
    const auto* next = static_cast<const std::byte*>(elements);
    for (uint64_t& digest : digests) {
      digest = kernels::cpu::LosslessDigest(next, bytes);
      next += bytes;
    }
    return OkStatus();
  }
  Result<LosslessPacket> Encode(const void* now, const void* before, size_t count,
                                size_t width) override {
    return encoder_.Encode(now, before, count, width);
  }
  Result<bool> Decode(std::span<const std::byte> packet, size_t count, size_t width,
                      void* copy) override {
    return DecodeLossless(packet, count, width, copy);
  }
  Status Copy(void* to, const void* from, size_t bytes) override {
    if (bytes != 0 && to != from) std::memmove(to, from, bytes);
    return OkStatus();
  }
  size_t bytes() const override { return encoder_.bytes(); }

 private:
  LosslessEncoder encoder_;
};

}  // namespace

Result<std::unique_ptr<ElementWork>> ElementWork::Create(const MemoryLocation& location,
                                                         const Devices* devices) {
  std::unique_ptr<ElementWork> work;
  if (location.is_device()) {
    work.reset(new (std::nothrow) DeviceWork(*devices, location));
  } else {
    work.reset(new (std::nothrow) HostWork);
  }
  if (work == nullptr) return Error(Code::kOutOfMemory, "no memory for a lossless compressor");
  return work;
}

}  // namespace onebit
