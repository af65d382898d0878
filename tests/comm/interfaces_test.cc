// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The grammar of ONEBIT_SOCKET_IFNAME on hosts made up here.
#include "comm/interfaces.h"

#include <arpa/inet.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onebit {
namespace {

using testing::HasSubstr;

Interface Make(const char* name, const char* host, bool is_loopback = false) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, host, &address.sin_addr);
  return {.name = name,
          .address = SocketAddress(reinterpret_cast<const sockaddr*>(&address)),
          .is_loopback = is_loopback};
}

const std::vector<Interface>& Host() {
  static const std::vector<Interface> host = {
      Make("lo", "127.0.0.1", true),    Make("docker0", "172.17.0.1"), Make("eth0", "10.0.0.1"),
      Make("eth1", "10.0.1.1"),         Make("veth12", "172.18.0.1"),  Make("ib0", "10.1.0.1"),
      Make("eth0", "192.168.0.1"),      Make("eth10", "10.0.2.1"),     Make("br-7", "172.19.0.1"),
      Make("enp1s0", "192.168.100.10"),
  };
  return host;
}

// Names of the selected interfaces in order, or the error.
std::string Select(std::string_view pattern, std::span<const Interface> host = Host()) {
  const auto selected = SelectInterfaces(host, pattern);
  if (!selected.ok()) {
    EXPECT_EQ(selected.status().code(), Code::kInvalidUsage);
    return selected.status().text();
  }
  return NamesOf(selected.value());
}

TEST(InterfacesTest, WithoutAPatternRealOnesComeFirstAndLoopbackLast) {
  EXPECT_EQ(Select(""), "eth0,eth1,ib0,eth10,enp1s0,docker0,veth12,br-7,lo");
}

TEST(InterfacesTest, TheLikeliestAreOfOneKind) {
  EXPECT_EQ(NamesOf(Likeliest(Host())), "eth0,eth1,ib0,eth10,enp1s0");
  EXPECT_EQ(NamesOf(Likeliest(std::span(Host()).first(2))), "docker0");
  EXPECT_EQ(NamesOf(Likeliest(std::span(Host()).first(1))), "lo");
}

TEST(InterfacesTest, EntriesArePrefixesInTheirOrder) {
  EXPECT_EQ(Select("eth"), "eth0,eth1,eth10");
  EXPECT_EQ(Select("ib,eth0"), "ib0,eth0");
  EXPECT_EQ(Select("eth1"), "eth1,eth10");
  EXPECT_EQ(Select("lo"), "lo");
}

TEST(InterfacesTest, EqualSignAsksForWholeNames) {
  EXPECT_EQ(Select("=eth1"), "eth1");
  EXPECT_EQ(Select("=lo,ib0"), "lo,ib0");
  EXPECT_THAT(Select("=eth"), HasSubstr("no interface that is up is called \"eth\""));
}

TEST(InterfacesTest, CaretTakesAllButThese) {
  EXPECT_EQ(Select("^docker,veth,br-,lo"), "eth0,eth1,ib0,eth10,enp1s0");
  EXPECT_EQ(Select("^eth"), "ib0,enp1s0,docker0,veth12,br-7,lo");
  EXPECT_EQ(Select("^nothing"), Select(""));
}

TEST(InterfacesTest, EveryAddressOfANameIsSelected) {
  const auto selected = SelectInterfaces(Host(), "=eth0");
  ASSERT_EQ(selected.value().size(), 2u);
  EXPECT_EQ(selected.value()[0].address.HostText(), "10.0.0.1");
  EXPECT_EQ(selected.value()[1].address.HostText(), "192.168.0.1");
}

TEST(InterfacesTest, WhatSelectsNothingListsTheCandidates) {
  const std::string text = Select("eth,wlan");
  EXPECT_THAT(text, HasSubstr("ONEBIT_SOCKET_IFNAME=\"eth,wlan\": no interface that is up is "
                              "called \"wlan\"; this host has lo (127.0.0.1), docker0"));
  EXPECT_THAT(text, HasSubstr("enp1s0 (192.168.100.10)"));
  EXPECT_THAT(Select("^lo", std::span(Host()).first(1)), HasSubstr("it excludes every interface"));
}

TEST(InterfacesTest, EmptyNamesAreRefused) {
  for (const char* pattern : {"=", "^", ",", "eth0,", ",eth0", "eth0,,ib0", "^lo,"}) {
    EXPECT_THAT(Select(pattern), HasSubstr("a name is empty")) << pattern;
  }
}

TEST(InterfacesTest, AHostWithoutInterfacesIsSaidToBeOne) {
  EXPECT_THAT(Select("", {}), HasSubstr("this host has no interface that is up"));
  EXPECT_THAT(Select("eth", {}), HasSubstr("this host has no interface that is up"));
}

TEST(InterfacesTest, ThisHostHasOneThatCanBeSelected) {
  const auto interfaces = ListInterfaces();
  ASSERT_TRUE(interfaces.ok()) << interfaces.status().text();
  const auto selected = SelectInterfaces(interfaces.value(), "");
  ASSERT_TRUE(selected.ok()) << selected.status().text();
  EXPECT_EQ(selected.value().size(), interfaces.value().size());
}

}  // namespace
}  // namespace onebit
