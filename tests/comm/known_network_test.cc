// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Which interface of this host is chosen, by what is known about the network.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/known_network.h"

namespace onebit {
namespace {

std::string Choose(std::string_view pattern, const std::vector<const char*>& environment) {
  const auto found = FindInterfaces(pattern, EnvironmentView(environment));
  return found.ok() ? found.value().front().address.HostText() : found.status().text();
}
std::string Guess() { return Choose("", {}); }

std::vector<Interface> OfThisHost() { return ListInterfaces().value(); }

TEST(KnownNetworkTest, TheWayToWherePyTorchMeetsIsTaken) {
  for (const Interface& interface : OfThisHost()) {
    if (interface.is_loopback) continue;
    const std::string place = "MASTER_ADDR=" + interface.address.HostText();
    EXPECT_EQ(Choose("", {place.c_str()}), interface.address.HostText());
  }
}

TEST(KnownNetworkTest, ALoopbackAddressOrAnUnknownPlaceTellsNothing) {
  for (const char* place : {"MASTER_ADDR=127.0.0.1", "MASTER_ADDR=::1", "MASTER_ADDR="}) {
    EXPECT_EQ(Choose("", {place}), Guess()) << place;
  }
}

TEST(KnownNetworkTest, NamesForGlooAndNcclAreTaken) {
  EXPECT_EQ(Choose("", {"GLOO_SOCKET_IFNAME=lo"}), "127.0.0.1");
  EXPECT_EQ(Choose("", {"GLOO_SOCKET_IFNAME=none,lo"}), "127.0.0.1");
  EXPECT_EQ(Choose("", {"NCCL_SOCKET_IFNAME=l"}), "127.0.0.1");
  EXPECT_EQ(Choose("", {"NCCL_SOCKET_IFNAME==none,lo"}), "127.0.0.1");
  for (const Interface& interface : OfThisHost()) {
    if (interface.is_loopback) continue;
    const std::string all_others = "NCCL_SOCKET_IFNAME=^=" + interface.name;
    EXPECT_NE(Choose("", {all_others.c_str()}), interface.address.HostText());
  }
}

TEST(KnownNetworkTest, NamesOfOthersThatLeadNowhereArePassedOver) {
  // Gloo's are whole names.
  for (const char* name : {"GLOO_SOCKET_IFNAME=none", "GLOO_SOCKET_IFNAME=l",
                           "GLOO_SOCKET_IFNAME=", "NCCL_SOCKET_IFNAME=,none"}) {
    EXPECT_EQ(Choose("", {name}), Guess()) << name;
  }
}

TEST(KnownNetworkTest, OnlyAGuessGivesSeveral) {
  const auto count = [](std::string_view pattern, const std::vector<const char*>& environment) {
    return FindInterfaces(pattern, EnvironmentView(environment)).value().size();
  };
  EXPECT_EQ(count("", {}), Likeliest(OfThisHost()).size());
  EXPECT_EQ(count("^none", {}), 1u);
  EXPECT_EQ(count("", {"GLOO_SOCKET_IFNAME=lo"}), 1u);
  EXPECT_EQ(count("", {"NCCL_SOCKET_IFNAME=^none"}), 1u);
  const std::string place = "MASTER_ADDR=" + Guess();
  EXPECT_EQ(count("", {place.c_str()}), 1u) << "the guess is a loopback address";
}

TEST(KnownNetworkTest, OurOwnVariableWins) {
  EXPECT_EQ(Choose("=lo", {"GLOO_SOCKET_IFNAME=none", "MASTER_ADDR=10.0.0.1"}), "127.0.0.1");
  EXPECT_THAT(Choose("none", {"GLOO_SOCKET_IFNAME=lo"}),
              ::testing::HasSubstr("no interface that is up is called"));
}

}  // namespace
}  // namespace onebit
