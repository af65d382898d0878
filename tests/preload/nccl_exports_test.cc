// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Names in a file of NCCL, and in files that are none or are damaged.
#include "plugins/nccl_preload/nccl_exports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

namespace onebit::preload {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

std::vector<std::byte> ContentOf(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> text((std::istreambuf_iterator<char>(file)),
                               std::istreambuf_iterator<char>());
  std::vector<std::byte> content(text.size());
  std::memcpy(content.data(), text.data(), text.size());
  return content;
}

TEST(NcclExportsTest, NamesAndVersionAreRead) {
  NcclExports exports;
  EXPECT_EQ(ReadNcclExports(ONEBIT_TEST_NEWER_NCCL, &exports), std::nullopt);
  EXPECT_EQ(exports.version, "9.1.2+cuda99.0");
  EXPECT_THAT(exports.names,
              ElementsAre("ncclFoo", "ncclGetVersion", "pncclFoo", "pncclGetVersion"));
  EXPECT_THAT(MissingInDropIn(exports.names), ElementsAre("ncclFoo", "pncclFoo"));
}

TEST(NcclExportsTest, TheDropInLacksNothingOfItsOwn) {
  EXPECT_THAT(MissingInDropIn({"ncclAllReduce", "ncclResetDebugInitInternal", "pncclAllReduce",
                               "pncclCommCount", "pncclResetDebugInitInternal"}),
              ElementsAre("pncclResetDebugInitInternal"));
}

TEST(NcclExportsTest, FilesThatAreNoNcclSayWhy) {
  NcclExports exports;
  EXPECT_EQ(ReadNcclExports("/nowhere/libnccl.so.2", &exports), "No such file or directory");
  EXPECT_EQ(ReadNcclExports("/", &exports), "it is not a regular file");
  EXPECT_EQ(ReadNcclExports("/dev/null", &exports), "it is not a regular file");
  constexpr char kNoLibrary[] = "it is not a 64-bit library for this system, or it is truncated";
  EXPECT_EQ(ReadNcclExports("/etc/passwd", &exports), kNoLibrary);
  EXPECT_EQ(ParseNcclExports({}, &exports), kNoLibrary);
}

// Those that NCCL is linked into cannot be told from those that open it, which the drop-in serves.
TEST(NcclExportsTest, ProgramsOfNcclSayIfTheInterposerSeesThem) {
  NcclExports exports;
  EXPECT_THAT(ReadNcclExports("/proc/self/exe", &exports),
              Optional(HasSubstr("binds none of its functions by name")));
  EXPECT_THAT(ReadNcclExports(ONEBIT_TEST_NCCL_PROGRAM, &exports),
              Optional(HasSubstr("binds 1 of NCCL's functions by name, so the interposer sees")));
}

// AddressSanitizer sees reads beyond the content.
TEST(NcclExportsTest, DamagedFilesAreNoDanger) {
  const std::vector<std::byte> whole = ContentOf(ONEBIT_TEST_NEWER_NCCL);
  ASSERT_GT(whole.size(), sizeof(Elf64_Ehdr));
  NcclExports exports;
  for (size_t bytes = 0; bytes < whole.size(); bytes += bytes < 100 ? 1 : 97) {
    const std::vector<std::byte> part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes));
    EXPECT_NE(ParseNcclExports(part, &exports), std::nullopt) << bytes;
  }
  Elf64_Ehdr head;
  std::memcpy(&head, whole.data(), sizeof head);
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> content = whole;
    // The head, or the table of sections, which is at the end.
    const size_t begin = round % 4 == 0 ? 0 : head.e_shoff;
    const size_t end = round % 4 == 0 ? sizeof head : content.size();
    for (int byte = 0; byte < 3; ++byte) {
      content[begin + random() % (end - begin)] = static_cast<std::byte>(random());
    }
    ParseNcclExports(content, &exports);
  }
}

}  // namespace
}  // namespace onebit::preload
