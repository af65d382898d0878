// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The work of lossless calls on elements in memory of a device: only packets leave it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "device/memory.h"
#include "lossless/element_work.h"

namespace onebit {

class DeviceWork final : public ElementWork {
 public:
  DeviceWork(const Devices& devices, const MemoryLocation& location)
      : devices_(devices), location_(location) {}

  void UseStream(onebitStream_t stream, uint64_t timeout_ms) override {
    stream_ = stream;
    timeout_ms_ = timeout_ms;
  }
  Result<uint64_t> DigestOf(const void* elements, size_t bytes) override;
  Result<std::optional<std::span<const std::byte>>> Encode(const void* now, const void* before,
                                                           size_t count, size_t width) override;
  Result<bool> Decode(std::span<const std::byte> packet, size_t count, size_t width,
                      void* copy) override;
  Status Copy(void* to, const void* from, size_t bytes) override;
  size_t bytes() const override {
    return words_.size() + starts_.size() + bytes_.size() + result_.size() + packet_.size();
  }

 private:
  Result<DeviceScope> Enter() const { return DeviceScope::Enter(devices_, location_.device); }
  Status Synchronize() const { return devices_.Synchronize(stream_, timeout_ms_); }
  // Grows memory to at least so many bytes; its content is lost.
  Status Reserve(Memory* memory, size_t bytes) const;
  // The starts of blocks from their words, both also on the device. Returns the end of the last.
  Result<uint64_t> PlaceBlocks();

  const Devices& devices_;
  const MemoryLocation location_;
  onebitStream_t stream_ = nullptr;
  uint64_t timeout_ms_ = 0;
  Memory words_;
  Memory starts_;
  Memory bytes_;   // of all blocks
  Memory result_;  // a digest, or faults
  std::vector<uint32_t> host_words_;
  std::vector<uint64_t> host_starts_;
  AlignedBuffer packet_;
};

}  // namespace onebit
