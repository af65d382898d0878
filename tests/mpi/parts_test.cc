// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The parts of transport `mpi` that do not call MPI: addresses, and variables of launchers.
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugins/transport_mpi/launcher.h"
#include "plugins/transport_mpi/mpi_address.h"

namespace onebit::mpi {
namespace {

using ::testing::HasSubstr;

Address Sample() {
  Address address{};
  address.head.comm_id = 7;
  address.head.rank = 1;
  address.head.nranks = 2;
  std::strcpy(address.head.host_name, "host");
  return address;
}

std::string Written(const Address& address) {
  std::string bytes(sizeof address, '\0');
  WriteAddress(address, bytes.data());
  return bytes;
}

const char* Read(const std::string& bytes) {
  Address address;
  return ReadAddress(bytes.data(), bytes.size(), &address);
}

TEST(MpiAddressTest, IsReadAsWritten) {
  const std::string bytes = Written(Sample());
  Address read;
  ASSERT_EQ(ReadAddress(bytes.data(), bytes.size(), &read), nullptr);
  EXPECT_EQ(read.head.comm_id, 7u);
  EXPECT_EQ(read.head.rank, 1u);
  EXPECT_STREQ(read.head.host_name, "host");
}

TEST(MpiAddressTest, EveryChangedByteIsFound) {
  const std::string good = Written(Sample());
  for (size_t at = 0; at < good.size(); ++at) {
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    EXPECT_NE(Read(damaged), nullptr) << "byte " << at;
  }
}

TEST(MpiAddressTest, EveryOtherLengthIsRefused) {
  const std::string good = Written(Sample());
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_STREQ(Read(good.substr(0, bytes)), "it has a wrong length");
  }
  EXPECT_STREQ(Read(good + 'x'), "it has a wrong length");
  Address read;
  EXPECT_STREQ(ReadAddress(nullptr, sizeof read, &read), "it has a wrong length");
}

TEST(MpiAddressTest, ANameWithoutAnEndIsRefused) {
  Address address = Sample();
  std::memset(address.head.host_name, 'x', sizeof address.head.host_name);
  EXPECT_STREQ(Read(Written(address)), "it is malformed");
}

TEST(MpiLauncherTest, OneOfAnotherMpiIsNamed) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"}) unsetenv(name);
  EXPECT_EQ(WrongLauncher(1), "");
  setenv("PMI_SIZE", "1", 1);  // a job of one rank
  EXPECT_EQ(WrongLauncher(1), "");
  setenv("PMI_SIZE", "4", 1);
  EXPECT_EQ(WrongLauncher(4), "") << "MPI knows of the others";
  EXPECT_THAT(WrongLauncher(1), HasSubstr("PMI_SIZE is 4, but "));
  unsetenv("PMI_SIZE");
}

}  // namespace
}  // namespace onebit::mpi
