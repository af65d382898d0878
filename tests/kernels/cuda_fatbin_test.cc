// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The device code that nvcc made: every kernel is in it, for every processor. No GPU is needed.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "kernels/cuda/kernel_table.h"

namespace onebit::kernels::cuda {
namespace {

// As fatbinary writes them: a header, then for each image an entry and the image.
struct FatbinHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t bytes;
};
struct FatbinEntry {
  uint16_t kind;
  uint16_t version;
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t unused[3];
  uint32_t processor;  // 90 for sm_90 and compute_90
};
constexpr uint32_t kMagic = 0xBA55ED50u;
constexpr uint16_t kPtx = 1, kElf = 2;

// Machine code by processor; of PTX, which is compressed, only that it is there.
struct Images {
  std::map<uint32_t, std::string> elf;
  std::map<uint32_t, std::string> ptx;
};

Images ImagesOf(const std::string& fatbin) {
  Images images;
  FatbinHeader header = {};
  if (fatbin.size() < sizeof(header)) return images;
  memcpy(&header, fatbin.data(), sizeof(header));
  if (header.magic != kMagic) return images;
  size_t at = header.header_bytes;
  while (at + sizeof(FatbinEntry) <= fatbin.size()) {
    FatbinEntry entry;
    memcpy(&entry, fatbin.data() + at, sizeof(entry));
    const std::string image = fatbin.substr(at + entry.header_bytes, entry.bytes);
    if (entry.kind == kElf) images.elf[entry.processor] = image;
    if (entry.kind == kPtx) images.ptx[entry.processor] = image;
    at += entry.header_bytes + entry.bytes;
  }
  return images;
}

TEST(CudaFatbinTest, HasEveryKernelForEveryProcessor) {
  std::ifstream file(ONEBIT_TEST_FATBIN, std::ios::binary);
  const std::string fatbin{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const Images images = ImagesOf(fatbin);
  for (const uint32_t processor : {80u, 90u}) {
    ASSERT_TRUE(images.elf.count(processor)) << "no code for sm_" << processor;
    for (const KernelEntry& kernel : kKernels) {
      // The section of a kernel's code is named after it.
      std::string section = std::string(".text.") + kernel.symbol;
      section += '\0';
      EXPECT_NE(images.elf.at(processor).find(section), std::string::npos)
          << kernel.symbol << " is not in the code for sm_" << processor;
    }
  }
  EXPECT_TRUE(images.ptx.count(90)) << "no PTX for later processors";
}

TEST(CudaFatbinTest, ParametersFitALaunch) {
  for (const KernelEntry& kernel : kKernels) EXPECT_LE(kernel.param_bytes, 4096u) << kernel.symbol;
}

}  // namespace
}  // namespace onebit::kernels::cuda
