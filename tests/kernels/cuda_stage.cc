// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/cuda_stage.h"

#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace onebit::kernels::cuda {
namespace {

constexpr size_t kBoundary = 256;      // alignment of device allocations
constexpr size_t kMargin = kBoundary;  // on each side of a copy
constexpr std::byte kUnwritten{0xA5};
constexpr size_t kLeastBlock = size_t{1} << 16;
constexpr uint64_t kTimeoutMs = 20'000;

void Require(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.text());
}

bool IsMemoryExact() {
  static const bool is_exact = [] {
    const char* const text = std::getenv("CUDA_TEST_EXACT_MEMORY");
    return text != nullptr && std::string_view(text) == "1";
  }();
  return is_exact;
}

// Folders of the CUDA library: of this build, or of a copy of the build.
std::vector<std::string> DeviceFolders() {
  const char* const folder = std::getenv("CUDA_TEST_DEVICE_FOLDER");
  return {std::string(folder == nullptr ? ONEBIT_TEST_DEVICE_FOLDER : folder)};
}

}  // namespace

DeviceBlocks::Block DeviceBlocks::Take(size_t bytes) {
  // Prefers the block returned last, because the next launch mostly needs the same size.
  const auto found = std::find_if(free_.rbegin(), free_.rend(),
                                  [&](const Block& block) { return block.bytes >= bytes; });
  if (found != free_.rend()) {
    const Block block = *found;
    free_.erase(std::prev(found.base()));
    return block;
  }
  const size_t size = IsMemoryExact() ? bytes : std::bit_ceil(std::max(bytes, kLeastBlock));
  void* memory = nullptr;
  Require(devices_.Check(devices_.functions().Allocate(size, &memory), "allocate"));
  return {memory, size};
}

void DeviceBlocks::Give(const Block& block) {
  if (IsMemoryExact()) {
    devices_.functions().Free(block.memory);
  } else {
    free_.push_back(block);
  }
}

const TestDevice* TestDevice::Find() {
  static const TestDevice* const found = []() -> const TestDevice* {
    // The library uses the driver that the program has loaded.
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      std::fprintf(stderr, "no CUDA driver: %s\n", dlerror());
      return nullptr;
    }
    const Devices* const devices = Devices::Find(DeviceFolders);
    if (devices == nullptr) {
      std::fprintf(stderr, "no CUDA device: %s\n", Devices::Obstacle().text().c_str());
      return nullptr;
    }
    uintptr_t token = 0;  // never left: the test's thread stays on the device
    Require(devices->Check(devices->functions().Enter(0, &token), "enter a device"));
    Result<DeviceStream> stream = DeviceStream::Create(*devices);
    Require(stream.status());
    return new TestDevice(devices, std::move(stream).value());
  }();
  return found;
}

Stage::~Stage() {
  for (const Region& region : regions_) device_.blocks().Give(region.block);
}

void* Stage::Copy(const void* host, size_t bytes, Use use) {
  if (host == nullptr) return nullptr;
  auto* const begin = static_cast<std::byte*>(const_cast<void*>(host));
  for (Region& known : regions_) {
    if (known.host == begin && known.bytes == bytes) {
      if (known.use != use) known.use = Use::kBoth;
      return static_cast<std::byte*>(known.block.memory) + known.lead;
    }
    const bool is_apart = bytes == 0 || known.bytes == 0 || begin + bytes <= known.host ||
                          known.host + known.bytes <= begin;
    if (!is_apart && (use != Use::kRead || known.use != Use::kRead)) {
      throw std::logic_error("memory of a launch overlaps");
    }
  }
  const size_t offset = reinterpret_cast<uintptr_t>(host) % kBoundary;
  const size_t lead = IsMemoryExact() ? offset : offset + kMargin;
  const size_t size = lead + bytes + (IsMemoryExact() ? 0 : kMargin);
  std::vector<std::byte> content(size, kUnwritten);
  if (use != Use::kWrite && bytes != 0) memcpy(content.data() + lead, host, bytes);

  const DeviceBlocks::Block block = device_.blocks().Take(size);
  regions_.push_back({begin, bytes, use, lead, block, std::move(content)});
  const Region& region = regions_.back();
  const size_t written = use == Use::kWrite && IsMemoryExact() ? 0 : size;
  Require(device_.devices().Copy(block.memory, region.before.data(), written, device_.stream()));
  return static_cast<std::byte*>(block.memory) + lead;
}

void Stage::Finish() {
  const Devices& devices = device_.devices();
  std::vector<std::vector<std::byte>> after;
  for (const Region& region : regions_) {
    after.push_back(region.before);
    // Memory that was never written must not be read.
    const size_t from = region.use == Use::kWrite && IsMemoryExact() ? region.lead : 0;
    const auto* const memory = static_cast<const std::byte*>(region.block.memory);
    Require(devices.Copy(after.back().data() + from, memory + from, after.back().size() - from,
                         device_.stream()));
  }
  Require(devices.Synchronize(device_.stream(), kTimeoutMs));
  for (size_t i = 0; i < regions_.size(); ++i) CheckAndTake(regions_[i], after[i]);
}

void Stage::CheckAndTake(const Region& region, const std::vector<std::byte>& after) {
  const std::vector<std::byte>& before = region.before;
  const auto begin = static_cast<ptrdiff_t>(region.lead);
  const auto end = static_cast<ptrdiff_t>(region.lead + region.bytes);
  if (!std::equal(after.begin(), after.begin() + begin, before.begin()) ||
      !std::equal(after.begin() + end, after.end(), before.begin() + end)) {
    throw std::runtime_error("a kernel wrote beyond " + std::to_string(region.bytes) + " bytes");
  }
  if (region.use == Use::kRead) {
    if (after != before) throw std::runtime_error("a kernel wrote to what it may only read");
  } else if (region.bytes != 0) {
    memcpy(region.host, after.data() + begin, region.bytes);
  }
}

}  // namespace onebit::kernels::cuda
