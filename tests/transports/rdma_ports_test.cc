// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Which RDMA port transport `socket` mentions.
#include "plugins/transport_socket/rdma_ports.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace onebit::sockets {
namespace {

class RdmaPortsTest : public ::testing::Test {
 protected:
  RdmaPortsTest() {
    std::string name = (std::filesystem::temp_directory_path() / "onebit-rdma-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~RdmaPortsTest() override { std::filesystem::remove_all(folder_); }

  // As the kernel shows a port.
  void Add(const std::string& device, const std::string& port, const std::string& state) {
    const auto path = std::filesystem::path(folder_) / device / "ports" / port;
    std::filesystem::create_directories(path);
    std::ofstream(path / "state") << state << "\n";
  }

  std::string folder_;
};

TEST_F(RdmaPortsTest, TheFirstActivePortCounts) {
  EXPECT_EQ(ActiveRdmaPort(folder_), "");
  Add("mlx5_0", "1", "1: DOWN");
  EXPECT_EQ(ActiveRdmaPort(folder_), "");
  Add("mlx5_2", "1", "4: ACTIVE");
  Add("mlx5_1", "2", "4: ACTIVE");
  Add("mlx5_1", "1", "2: INIT");
  EXPECT_EQ(ActiveRdmaPort(folder_), "mlx5_1 port 2");
}

TEST_F(RdmaPortsTest, AMachineWithoutSuchDevicesHasNone) {
  EXPECT_EQ(ActiveRdmaPort(folder_ + "/nowhere"), "");
  std::filesystem::create_directories(folder_ + "/mlx5_0");
  EXPECT_EQ(ActiveRdmaPort(folder_), "");
}

}  // namespace
}  // namespace onebit::sockets
