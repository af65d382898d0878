// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Stages host memory for one launch on a device: copies it there before the launch, and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "device/devices.h"

namespace onebit::kernels::cuda {

// Device memory that launches take and return, to avoid as many allocations as there are launches,
// a hundred thousand. With CUDA_TEST_EXACT_MEMORY=1 each block is a separate allocation. For one
// thread with one stream, where returned blocks may still be in use.
class DeviceBlocks {
 public:
  struct Block {
    void* memory;
    size_t bytes;
  };

  explicit DeviceBlocks(const Devices& devices) : devices_(devices) {}

  // Returns a block of at least `bytes` with any content. Throws if there is no memory left.
  Block Take(size_t bytes);
  void Give(const Block& block);

 private:
  const Devices& devices_;
  std::vector<Block> free_;
};

// The device that tests use, the first one.
class TestDevice {
 public:
  // Returns null, with the reason on stderr, if there is none. Lives until the process ends.
  static const TestDevice* Find();

  const Devices& devices() const { return *devices_; }
  onebitStream_t stream() const { return stream_.get(); }
  DeviceBlocks& blocks() const { return *blocks_; }

 private:
  TestDevice(const Devices* devices, DeviceStream stream)
      : devices_(devices),
        stream_(std::move(stream)),
        blocks_(std::make_unique<DeviceBlocks>(*devices)) {}

  const Devices* devices_;
  DeviceStream stream_;
  std::unique_ptr<DeviceBlocks> blocks_;
};

// In, Out and InOut take a pointer to host memory and replace it by one to the copy, at the same
// distance from a 256-byte boundary, so that it has the same alignment. Null pointers stay. Memory
// that is passed twice from the same address on has one copy.
//
// Finish fails if a kernel has written beyond a copy, or into read-only memory. With
// CUDA_TEST_EXACT_MEMORY=1 copies end where their allocation ends, and output memory is not
// initialised: for tools that watch every access.
class Stage {
 public:
  explicit Stage(const TestDevice& device) : device_(device) {}
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  template <class T>
  void In(T** pointer, size_t bytes) {
    *pointer = static_cast<T*>(Copy(*pointer, bytes, Use::kRead));
  }
  template <class T>
  void Out(T** pointer, size_t bytes) {
    *pointer = static_cast<T*>(Copy(*pointer, bytes, Use::kWrite));
  }
  template <class T>
  void InOut(T** pointer, size_t bytes) {
    *pointer = static_cast<T*>(Copy(*pointer, bytes, Use::kBoth));
  }

  // Waits for the launch and copies back. Throws if it failed or wrote outside of its memory.
  void Finish();

 private:
  enum class Use { kRead, kWrite, kBoth };
  struct Region {
    std::byte* host;
    size_t bytes;
    Use use;
    size_t lead;  // bytes of the block before the copy
    DeviceBlocks::Block block;
    std::vector<std::byte> before;  // the block's used part before the launch
  };

  void* Copy(const void* host, size_t bytes, Use use);
  static void CheckAndTake(const Region& region, const std::vector<std::byte>& after);

  const TestDevice& device_;
  std::vector<Region> regions_;
};

}  // namespace onebit::kernels::cuda
