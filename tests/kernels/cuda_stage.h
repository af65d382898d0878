// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Memory of the host that one launch on a device works on: copied there before it, and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "device/devices.h"

namespace onebit::kernels::cuda {

// Memory of the device that launches take and give back, so that a hundred thousand of them do not
// allocate as often. With CUDA_TEST_EXACT_MEMORY=1 each block is an allocation of its own. For one
// thread, which works on one stream: what was given back may still be in use there.
class DeviceBlocks {
 public:
  struct Block {
    void* memory;
    size_t bytes;
  };

  explicit DeviceBlocks(const Devices& devices) : devices_(devices) {}

  // At least `bytes`, of any content. Throws if there is no more memory.
  Block Take(size_t bytes);
  void Give(const Block& block);

 private:
  const Devices& devices_;
  std::vector<Block> free_;
};

// The device that tests run on: the first one.
class TestDevice {
 public:
  // Null, with the reason on stderr, where there is none. Lives until the process ends.
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

// Each of In, Out and InOut names memory of the host by a pointer, which becomes one to the copy:
// at the same distance from a 256-byte boundary, so that it has the same alignment. Null pointers
// stay. Memory that is named twice from the same address on has one copy.
//
// What a kernel writes beyond a copy, or into what it may only read, is an error of Finish. With
// CUDA_TEST_EXACT_MEMORY=1 copies end where their allocation ends and nothing is written in
// advance to what is only written: for tools that watch every access.
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

  // Waits for the launch and copies back. Throws if it failed or wrote what it must not.
  void Finish();

 private:
  enum class Use { kRead, kWrite, kBoth };
  struct Region {
    std::byte* host;
    size_t bytes;
    Use use;
    size_t lead;  // bytes of the block before the copy
    DeviceBlocks::Block block;
    std::vector<std::byte> before;  // what is used of the block, as it is before the launch
  };

  void* Copy(const void* host, size_t bytes, Use use);
  static void CheckAndTake(const Region& region, const std::vector<std::byte>& after);

  const TestDevice& device_;
  std::vector<Region> regions_;
};

}  // namespace onebit::kernels::cuda
