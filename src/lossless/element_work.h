// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The work of lossless calls on elements, where they are: in host memory, or on a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "codec/lossless_packet.h"
#include "device/devices.h"

namespace onebit {

// Pointers to elements are to memory of the location that it was created for; packets are in host
// memory. Every function waits for its work.
class ElementWork {
 public:
  // `devices` is null if the location is host memory.
  static Result<std::unique_ptr<ElementWork>> Create(const MemoryLocation& location,
                                                     const Devices* devices);
  virtual ~ElementWork() = default;

  // Waits for the earlier work of the stream, on which what follows is done.
  virtual Status Begin(onebitStream_t, uint64_t /*timeout_ms*/) { return OkStatus(); }

  // The digests of consecutive arrays of so many bytes.
  virtual Status FindDigests(const void* elements, size_t bytes, std::span<uint64_t> digests) = 0;
  // See LosslessEncoder and DecodeLossless.
  virtual Result<LosslessPacket> Encode(const void* now, const void* before, size_t count,
                                        size_t width) = 0;
  virtual Result<bool> Decode(std::span<const std::byte> packet, size_t count, size_t width,
                              void* copy) = 0;
  // Either pointer may be to host memory.
  virtual Status Copy(void* to, const void* from, size_t bytes) = 0;
  // Bytes of memory that it keeps.
  virtual size_t bytes() const = 0;
};

}  // namespace onebit
