// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The work of lossless calls on elements in memory of a device: only packets leave it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "device/memory.h"
#include "kernels/cuda/params.h"
#include "lossless/element_work.h"

namespace onebit {

class DeviceWork final : public ElementWork {
 public:
  DeviceWork(const Devices& devices, const MemoryLocation& location)
      : devices_(devices), location_(location) {}

  Status Begin(onebitStream_t stream, uint64_t timeout_ms) override;
  Status FindDigests(const void* elements, size_t bytes, std::span<uint64_t> digests) override;
  Result<LosslessPacket> Encode(const void* now, const void* before, size_t count,
                                size_t width) override;
  Result<bool> Decode(std::span<const std::byte> packet, size_t count, size_t width,
                      void* copy) override;
  Status Copy(void* to, const void* from, size_t bytes) override;
  size_t bytes() const override {
    return words_.size() + starts_.size() + bytes_.size() + digests_.size() + faults_.size() +
           packet_.size();
  }

 private:
  Result<DeviceScope> Enter() const { return DeviceScope::Enter(devices_, location_.device); }
  Status Synchronize() const { return devices_.Synchronize(stream_, timeout_ms_); }
  // Allocates memory whose size is the same in every call.
  Status Create(Memory* memory, size_t bytes) const;
  // Makes room for so many bytes, which are never more than `most`.
  Status Reserve(GrowableBuffer* memory, size_t bytes, size_t most) const;
  // Computes from host_words_ where blocks begin. Returns where the last one ends.
  uint64_t PlaceBlocks();
  // Copies to the device where blocks begin, for a kernel that reads or writes their bytes.
  Status CopyStarts(kernels::cuda::LosslessParams* params);

  const Devices& devices_;
  const MemoryLocation location_;
  onebitStream_t stream_ = nullptr;
  uint64_t timeout_ms_ = 0;
  Memory words_;
  Memory starts_;
  GrowableBuffer bytes_;  // of all blocks
  GrowableBuffer digests_;
  Memory faults_;
  // Host memory of copies on the stream, which may be made after a function has returned an error.
  std::vector<uint32_t> host_words_;
  std::vector<uint64_t> host_starts_;
  std::vector<uint64_t> host_digests_;
  uint32_t host_faults_ = 0;
  AlignedBuffer packet_;
};

}  // namespace onebit
