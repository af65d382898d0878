// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Which files of shared memory count as left behind.
#include "plugins/common/abandoned_segments.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace onebit::plugin {
namespace {

namespace fs = std::filesystem;

class AbandonedSegmentsTest : public ::testing::Test {
 protected:
  // In shared memory, as the real ones.
  AbandonedSegmentsTest() {
    std::string name = "/dev/shm/onebit-test-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~AbandonedSegmentsTest() override { fs::remove_all(folder_); }

  std::string Make(const std::string& name) const {
    std::string path = folder_ + "/" + name;
    std::ofstream(path) << std::string(4096, 's');
    return path;
  }
  int Remove() const { return RemoveAbandonedSegments(kUcxSegments, folder_); }

  std::string folder_;
};

TEST_F(AbandonedSegmentsTest, WhatNobodyHasOpenIsRemoved) {
  Make("ucx_shm_posix_1");
  Make("ucx_shm_posix_2");
  const std::string other = Make("vader_segment.0");
  EXPECT_EQ(Remove(), 2);
  EXPECT_TRUE(fs::exists(other));
  EXPECT_EQ(Remove(), 0);
}

TEST_F(AbandonedSegmentsTest, WhatIsOpenStays) {
  const std::string path = Make("ucx_shm_posix_3");
  const int fd = open(path.c_str(), O_RDONLY);
  EXPECT_EQ(Remove(), 0);
  EXPECT_TRUE(fs::exists(path));
  close(fd);
  EXPECT_EQ(Remove(), 1);
}

TEST_F(AbandonedSegmentsTest, WhatIsMappedStays) {
  const std::string path = Make("ucx_shm_posix_4");
  const int fd = open(path.c_str(), O_RDWR);
  void* const memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(memory, MAP_FAILED);
  close(fd);
  EXPECT_EQ(Remove(), 0);
  EXPECT_TRUE(fs::exists(path));
  munmap(memory, 4096);
  EXPECT_EQ(Remove(), 1);
}

TEST_F(AbandonedSegmentsTest, LinksAndFoldersStay) {
  const std::string target = Make("target");
  fs::create_symlink(target, folder_ + "/ucx_shm_posix_5");
  fs::create_directory(folder_ + "/ucx_shm_posix_6");
  EXPECT_EQ(Remove(), 0);
  EXPECT_TRUE(fs::exists(target));
  EXPECT_EQ(RemoveAbandonedSegments(kUcxSegments, folder_ + "/nowhere"), 0);
}

}  // namespace
}  // namespace onebit::plugin
