// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The device code from nvcc contains every kernel for every processor. Needs no GPU.
#include <elf.h>
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

// The format of fatbinary: a header, then an entry and an image for each.
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
constexpr uint32_t kTargets[] = {ONEBIT_TEST_TARGETS};  // processors that it was compiled for
constexpr uint32_t kMagic = 0xBA55ED50u;
constexpr uint16_t kPtx = 1, kElf = 2;

// Machine code by processor. PTX is compressed, so only its presence is known.
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

Images ReadImages() {
  std::ifstream file(ONEBIT_TEST_FATBIN, std::ios::binary);
  return ImagesOf({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
}

template <class T>
T Read(const std::string& image, size_t at) {
  T value = {};
  if (at + sizeof(T) <= image.size()) memcpy(&value, image.data() + at, sizeof(T));
  return value;
}

// Bytes of local memory that each function of an ELF image needs, which are values that do not fit
// in registers. They are in the section .nv.info, a list of entries: format and kind, a byte each,
// then a 16-bit value, which in format 4 is the size of the data behind it. Kind 17 has a symbol
// and its bytes.
std::map<std::string, uint32_t> LocalBytesOf(const std::string& elf) {
  constexpr uint8_t kSized = 4, kFrameSize = 0x11;
  const auto header = Read<Elf64_Ehdr>(elf, 0);
  const auto section = [&](size_t i) {
    return Read<Elf64_Shdr>(elf, header.e_shoff + i * header.e_shentsize);
  };
  const auto text_at = [&](const Elf64_Shdr& strings, size_t offset) {
    return std::string(elf.c_str() + strings.sh_offset + offset);
  };
  Elf64_Shdr symbols = {}, notes = {};
  for (size_t i = 0; i < header.e_shnum; ++i) {
    if (section(i).sh_type == SHT_SYMTAB) symbols = section(i);
    if (text_at(section(header.e_shstrndx), section(i).sh_name) == ".nv.info") notes = section(i);
  }
  std::map<std::string, uint32_t> bytes;
  for (size_t at = notes.sh_offset; at < notes.sh_offset + notes.sh_size; at += 4) {
    if (Read<uint8_t>(elf, at) != kSized) continue;
    if (Read<uint8_t>(elf, at + 1) == kFrameSize) {
      const auto symbol =
          Read<Elf64_Sym>(elf, symbols.sh_offset + Read<uint32_t>(elf, at + 4) * sizeof(Elf64_Sym));
      bytes[text_at(section(symbols.sh_link), symbol.st_name)] = Read<uint32_t>(elf, at + 8);
    }
    at += Read<uint16_t>(elf, at + 2);
  }
  return bytes;
}

TEST(CudaFatbinTest, HasEveryKernelForEveryProcessor) {
  const Images images = ReadImages();
  for (const uint32_t processor : kTargets) {
    ASSERT_TRUE(images.elf.count(processor)) << "no code for sm_" << processor;
    for (const KernelEntry& kernel : kKernels) {
      // The section of a kernel's code is named after it.
      std::string section = std::string(".text.") + kernel.symbol;
      section += '\0';
      EXPECT_NE(images.elf.at(processor).find(section), std::string::npos)
          << kernel.symbol << " is not in the code for sm_" << processor;
    }
  }
  EXPECT_EQ(images.ptx.size(), 1u) << "no PTX for later processors";
}

// A tile in memory instead of registers would cost as much as the pass over memory that it saves.
// From sm_100 on nvcc 13.0 leaves an address there.
TEST(CudaFatbinTest, HotKernelsKeepAllInRegisters) {
  const Images images = ReadImages();
  for (const uint32_t processor : kTargets) {
    ASSERT_TRUE(images.elf.count(processor)) << "no code for sm_" << processor;
    const auto bytes = LocalBytesOf(images.elf.at(processor));
    for (const Kernel kernel :
         {Kernel::kCompressBlocks, Kernel::kCompressBlocksFew, Kernel::kReduceBlocks,
          Kernel::kReduceBlocksFew, Kernel::kDecode, Kernel::kDecodeFew, Kernel::kDecodeAverage,
          Kernel::kDecodeAverageFew, Kernel::kAddDelta, Kernel::kAddDeltaFew, Kernel::kCopy,
          Kernel::kCopyFew, Kernel::kDenseReduce, Kernel::kDenseReduceWords, Kernel::kChecksum,
          Kernel::kLosslessMeasure, Kernel::kLosslessWrite, Kernel::kLosslessDecode,
          Kernel::kLosslessDigest}) {
      const char* const symbol = kKernels[static_cast<size_t>(kernel)].symbol;
      ASSERT_EQ(bytes.count(symbol), 1u) << symbol << " is not described for sm_" << processor;
      EXPECT_LE(bytes.at(symbol), processor < 100 ? 0u : 8u)
          << symbol << " spills on sm_" << processor;
    }
  }
}

TEST(CudaFatbinTest, ParametersFitALaunch) {
  for (const KernelEntry& kernel : kKernels)
    EXPECT_LE(kernel.param_bytes, 32'764u) << kernel.symbol;
}

}  // namespace
}  // namespace onebit::kernels::cuda
