// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The memory that all benchmarks of codec_perf share: far beyond any cache, touched before use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/types.h"

namespace onebit::perf {

class Buffers {
 public:
  static constexpr size_t kElements = size_t{64} << 20;
  static constexpr size_t kPackets = 8;
  static constexpr size_t kMinBlock = 64;

  // Allocates about 1.8 GB on the first call. Not thread-safe.
  static Buffers& Get();

  const float* Numbers(size_t i) const { return numbers_[i]; }  // i < 2; ordinary fp32
  const void* Halves() const { return halves_; }                // finite as fp16 and as bf16
  float* Output(size_t i) { return outputs_[i]; }               // i < 4
  uint8_t* BitOutput() { return bit_output_; }
  float* ScaleOutput() { return scale_output_; }  // enough for blocks of kMinBlock
  const uint8_t* const* Packets() const { return packets_; }
  const float* const* PacketScales() const { return packet_scales_; }

 private:
  Buffers();

  void* Allocate(size_t bytes);

  struct Free {
    void operator()(void* memory) const;
  };
  std::vector<std::unique_ptr<void, Free>> memory_;
  float* numbers_[2];
  void* halves_;
  float* outputs_[4];
  uint8_t* bit_output_;
  float* scale_output_;
  const uint8_t* packets_[kPackets];
  const float* packet_scales_[kPackets];
};

}  // namespace onebit::perf
