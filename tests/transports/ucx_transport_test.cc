// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Properties that only transport `ucx` has: its settings, its addresses, and messages of strangers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucp/api/ucp.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "plugins/transport_ucx/net_devices.h"
#include "plugins/transport_ucx/ucx_address.h"
#include "plugins/transport_ucx/ucx_process.h"
#include "plugins/transport_ucx/ucx_settings.h"
#include "plugins/transport_ucx/worker.h"
#include "tests/support/bytes_of.h"
#include "tests/support/process_figures.h"
#include "tests/transports/conformance.h"
#include "tests/transports/ucx_fixture.h"

namespace onebit::ucx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string AddressOf(const channel::MessageChannel& channel) {
  std::string address(4096, '\0');
  size_t bytes = 0;
  EXPECT_EQ(channel.GetAddress(address.data(), &bytes), onebitSuccess);
  address.resize(bytes);
  return address;
}

// The channel of a communicator of one rank.
class OneRank {
 public:
  explicit OneRank(const StartedTransport& started, uint64_t comm_id = 7) {
    const channel::ChannelInfo info{.rank = 0, .nranks = 1, .comm_id = comm_id};
    EXPECT_EQ(started.channels().Open(info, &channel_), onebitSuccess);
    address_ = AddressOf(*channel_);
  }

  channel::MessageChannel& channel() const { return *channel_; }
  const std::string& address() const { return address_; }
  void Progress() const { EXPECT_EQ(channel_->Progress(), onebitSuccess); }
  onebitResult_t Connect(const std::string& address) {
    const std::vector<std::byte> addresses[] = {testing::CopyOf(testing::BytesOf(address))};
    return channel_->Connect(addresses, 1000);
  }

 private:
  std::unique_ptr<channel::MessageChannel> channel_;
  std::string address_;
};

TEST(UcxAddressTest, DamagedAddressesAreRefused) {
  const StartedTransport started;
  OneRank rank(started);
  const std::string good = rank.address();
  EXPECT_EQ(rank.Connect(""), onebitInvalidArgument);
  EXPECT_EQ(rank.Connect(std::string(5000, 'x')), onebitInvalidArgument);
  EXPECT_EQ(rank.Connect(std::string(good.size(), '\xff')), onebitInvalidArgument);
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_EQ(rank.Connect(good.substr(0, bytes)), onebitInvalidArgument) << bytes;
  }
  for (size_t at = 0; at < good.size(); ++at) {
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    EXPECT_EQ(rank.Connect(damaged), onebitInvalidArgument) << "byte " << at;
  }
  EXPECT_EQ(rank.Connect(good), onebitSuccess) << started.warnings();
}

TEST(UcxAddressTest, AnAddressLongerThanThereIsRoomForIsRefused) {
  Address address{};
  const std::string of_worker(kMostAddressBytes - sizeof address + 1, 'x');
  std::string bytes(kMostAddressBytes + 1, '\0');
  WriteAddress(address, of_worker.data(), of_worker.size(), bytes.data());
  EXPECT_STREQ(ReadAddress(bytes.data(), bytes.size(), &address), "it has a wrong length");
  bytes.pop_back();
  WriteAddress(address, of_worker.data(), of_worker.size() - 1, bytes.data());
  EXPECT_EQ(ReadAddress(bytes.data(), bytes.size(), &address), nullptr);
}

TEST(UcxAddressTest, ANameWithoutAnEndIsRefused) {
  Address address{};
  std::memset(address.head.host_name, 'x', sizeof address.head.host_name);
  std::string bytes(sizeof address + 4, '\0');
  ASSERT_EQ(WriteAddress(address, "ucx", 4, bytes.data()), bytes.size());
  EXPECT_STREQ(ReadAddress(bytes.data(), bytes.size(), &address), "it is malformed");
}

TEST(UcxAddressTest, AnotherCommunicatorsAddressIsRefused) {
  const StartedTransport started;
  OneRank rank(started);
  const OneRank other(started, 8);
  EXPECT_EQ(rank.Connect(other.address()), onebitInvalidArgument);
  EXPECT_THAT(started.warnings(), HasSubstr("belongs to rank 0 of 1 in communicator 8"));
}

TEST(UcxAddressTest, ARankWithAnotherProtocolIsRefused) {
  const StartedTransport started;
  const StartedTransport rendezvous(SettingTexts{{"ONEBIT_UCX_RENDEZVOUS", "1"}});
  OneRank rank(started);
  const OneRank other(rendezvous);
  EXPECT_EQ(rank.Connect(other.address()), onebitInvalidUsage);
  EXPECT_THAT(started.warnings(), HasSubstr("ONEBIT_UCX_RENDEZVOUS=0, rank 0 on"));
}

// A process that knows the address of a rank and speaks UCX, but not this transport.
class Stranger {
 public:
  explicit Stranger(const std::string& address) {
    const ucp_params_t params{.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
    EXPECT_EQ(ucp_init(&params, nullptr, &context_), UCS_OK);
    const ucp_worker_params_t worker{};
    EXPECT_EQ(ucp_worker_create(context_, &worker, &worker_), UCS_OK);
    const ucp_ep_params_t endpoint{
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        .address = reinterpret_cast<const ucp_address_t*>(address.data() + sizeof(Address)),
        .err_mode = UCP_ERR_HANDLING_MODE_PEER};
    EXPECT_EQ(ucp_ep_create(worker_, &endpoint, &endpoint_), UCS_OK);
  }
  ~Stranger() {
    ucp_worker_destroy(worker_);
    ucp_cleanup(context_);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  // Announces a payload until the rank has answered.
  void Announce(const OneRank& rank, size_t header_bytes, size_t payload_bytes) {
    const std::string header(header_bytes, 'h');
    const std::string payload(payload_bytes, 'p');
    const ucp_request_param_t param{.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                    .flags = UCP_AM_SEND_FLAG_RNDV};
    const ucs_status_ptr_t sent =
        ucp_am_send_nbx(endpoint_, kActiveMessage, header.data(), header.size(), payload.data(),
                        payload.size(), &param);
    ASSERT_TRUE(UCS_PTR_IS_PTR(sent));
    for (int i = 0; i < 1'000'000 && ucp_request_check_status(sent) == UCS_INPROGRESS; ++i) {
      ucp_worker_progress(worker_);
      rank.Progress();
    }
    EXPECT_EQ(ucp_request_check_status(sent), UCS_OK);
    ucp_request_free(sent);
  }

 private:
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
};

TEST(UcxStrangerTest, AnnouncementsThatNoRankMakesAreDropped) {
  for (const char* rendezvous : {"0", "1"}) {
    const StartedTransport started(
        SettingTexts{{"ONEBIT_UCX_RENDEZVOUS", rendezvous}, {"ONEBIT_UCX_TLS", "tcp"}});
    OneRank rank(started);
    ASSERT_EQ(rank.Connect(rank.address()), onebitSuccess) << started.warnings();
    Stranger stranger(rank.address());
    stranger.Announce(rank, 48, kRendezvousPieceBytes + 1);
    stranger.Announce(rank, ONEBIT_TRANSPORT_FRAME_HEADER_BYTES + 1, 100'000);
    stranger.Announce(rank, 1, 100'000);
    EXPECT_THAT(started.warnings(), HasSubstr("drops a message")) << "rendezvous " << rendezvous;
  }
}

// Two channels of one communicator; only that of rank 0 connects.
class MissingRank {
 public:
  explicit MissingRank(const StartedTransport& started) {
    for (int rank = 0; rank < 2; ++rank) {
      const channel::ChannelInfo info{.rank = rank, .nranks = 2, .comm_id = 9};
      EXPECT_EQ(started.channels().Open(info, &channels_[rank]), onebitSuccess);
      addresses_[rank] = testing::CopyOf(testing::BytesOf(AddressOf(*channels_[rank])));
    }
  }

  onebitResult_t Connect(uint64_t timeout_ms) {
    return channels_[0]->Connect(addresses_, timeout_ms);
  }
  void Abort() { channels_[0]->Abort(); }

 private:
  std::vector<std::byte> addresses_[2];
  std::unique_ptr<channel::MessageChannel> channels_[2];
};

TEST(UcxConnectTest, MissingRanksAreNamed) {
  const StartedTransport started;
  MissingRank missing(started);
  EXPECT_EQ(missing.Connect(50), onebitTimeout);
  EXPECT_THAT(started.warnings(), AllOf(HasSubstr("rank 0 waited 50 ms in vain for rank 1 (on "),
                                        HasSubstr("by shared memory)")));
}

TEST(UcxConnectTest, EndsOnAbort) {
  const StartedTransport started;
  MissingRank missing(started);
  const std::jthread watchdog([&missing] {
    EXPECT_TRUE(onebit::testing::AwaitOtherThreadsAsleep());
    missing.Abort();
  });
  EXPECT_EQ(missing.Connect(20'000), onebitAborted);
}

TEST(UcxConnectTest, FailsAfterAbort) {
  const StartedTransport started;
  MissingRank missing(started);
  missing.Abort();
  EXPECT_EQ(missing.Connect(20'000), onebitAborted);
}

TEST(UcxSettingsTest, WrongValuesAreRefusedByName) {
  const SettingTexts wrong[] = {
      {{"ONEBIT_UCX_EAGER_BYTES", "32769"}},   {{"ONEBIT_UCX_EAGER_BYTES", "many"}},
      {{"ONEBIT_UCX_EARLY_BYTES", "1048577"}}, {{"ONEBIT_UCX_TLS", "tcp;rm"}},
      {{"ONEBIT_UCX_NET_DEVICES", "eth 0"}},   {{"ONEBIT_UCX_SHARED_MEMORY", "yes"}}};
  for (const SettingTexts& settings : wrong) {
    const StartedTransport started(settings);
    EXPECT_EQ(started.start_result(), onebitInvalidUsage);
    EXPECT_THAT(started.warnings(), HasSubstr(settings.begin()->first));
  }
}

TEST(UcxSettingsTest, UnknownDevicesAndTransportsAreErrorsThatListTheKnownOnes) {
  const StartedTransport device(SettingTexts{{"ONEBIT_UCX_NET_DEVICES", "lo,nonesuch0"}});
  EXPECT_EQ(device.start_result(), onebitInvalidUsage);
  EXPECT_THAT(device.warnings(), AllOf(HasSubstr("\"nonesuch0\""), HasSubstr(" lo")));
  const StartedTransport interfaces({}, "nonesuch1");
  EXPECT_EQ(interfaces.start_result(), onebitInvalidUsage);
  EXPECT_THAT(interfaces.warnings(), HasSubstr("ONEBIT_SOCKET_IFNAME"));
  const StartedTransport tls(SettingTexts{{"ONEBIT_UCX_TLS", "pigeon"}});
  EXPECT_NE(tls.start_result(), onebitSuccess);
  EXPECT_THAT(tls.warnings(), HasSubstr("ONEBIT_UCX_TLS=pigeon"));
  const StartedTransport all_but(SettingTexts{{"ONEBIT_UCX_NET_DEVICES", "^lo"}});
  EXPECT_EQ(all_but.start_result(), onebitInvalidUsage);
  EXPECT_THAT(all_but.warnings(), HasSubstr("name those to use"));
}

TEST(UcxSettingsTest, AMisspeltTransportBesideOthersIsWarnedOf) {
  const StartedTransport started(SettingTexts{{"ONEBIT_UCX_TLS", "tcp,pidgeon,self"}});
  EXPECT_EQ(started.start_result(), onebitSuccess);
  EXPECT_THAT(started.warnings(), HasSubstr("'pidgeon' is not available"));
}

TEST(UcxSettingsTest, ASettingComesBeforeTheInterfacesOfTheLibrary) {
  const StartedTransport started(SettingTexts{{"ONEBIT_UCX_NET_DEVICES", "lo"}}, "nonesuch1");
  EXPECT_EQ(started.start_result(), onebitSuccess) << started.warnings();
}

TEST(UcxDevicesTest, BridgesOfContainersAreLeftOut) {
  // A name that is no network interface stands for an RDMA device, and interfaces do not matter to
  // it.
  const std::set<std::string> devices = {"lo", "mlx5_0:1"};
  EXPECT_EQ(UsableDevices("", devices), "lo,mlx5_0:1");
  EXPECT_EQ(UsableDevices("eth7", devices), "mlx5_0:1");
  EXPECT_EQ(UsableDevices("eth7,lo", devices), "lo,mlx5_0:1");
}

TEST(UcxDevicesTest, AdaptersAreDevicesWithoutAnInterface) {
  const std::set<std::string> devices = {"lo", "mlx5_0:1"};
  EXPECT_TRUE(HasAdapter("all", devices));
  EXPECT_TRUE(HasAdapter("lo,mlx5_0:1", devices));
  EXPECT_FALSE(HasAdapter("lo", devices));
  EXPECT_FALSE(HasAdapter("all", {"lo"}));
  for (const char* tls :
       {"all", "rc,self", "tcp,rc_mlx5", "ib", "ud_verbs", "^tcp", "^shm,self", "^dc"}) {
    EXPECT_TRUE(AllowsAdapters(tls)) << tls;
  }
  for (const char* tls : {"tcp", "tcp,self", "shm,self", "^ib", "^tcp,ib"}) {
    EXPECT_FALSE(AllowsAdapters(tls)) << tls;
  }
}

TEST(UcxProcessTest, TheLimitOfLockedMemoryHoldsForUsersOnly) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit low{.rlim_cur = 65'536, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &low), 0);
  void* const page = mmap(nullptr, 131'072, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool is_privileged = mlock(page, 131'072) == 0;
  EXPECT_EQ(CanLockMemoryForUcx(), is_privileged);
  munmap(page, 131'072);
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

TEST(UcxDevicesTest, AdaptersOfTheKernelAreSoftware) {
  const std::string folder = ::testing::TempDir() + "ucx_adapters" + std::to_string(getpid());
  EXPECT_FALSE(HasSoftwareAdapter(folder));
  std::filesystem::create_directories(folder + "/mlx5_0/device");
  EXPECT_FALSE(HasSoftwareAdapter(folder));
  std::filesystem::create_directories(folder + "/rxe0");
  EXPECT_TRUE(HasSoftwareAdapter(folder));
  std::filesystem::remove_all(folder);
}

TEST(UcxDescribeTest, TellsTheWay) {
  const SettingTexts network = {{"ONEBIT_UCX_TLS", "tcp"}, {"ONEBIT_UCX_NET_DEVICES", "lo"}};
  for (const auto& [settings, way] :
       {std::pair{SettingTexts{}, "memory of this process"}, std::pair{network, "tcp over lo"}}) {
    const StartedTransport started(settings);
    OneRank rank(started);
    char text[64] = "";
    EXPECT_EQ(rank.channel().DescribePeer(0, text, sizeof text), onebitInvalidUsage);
    ASSERT_EQ(rank.Connect(rank.address()), onebitSuccess) << started.warnings();
    EXPECT_EQ(rank.channel().DescribePeer(0, text, sizeof text), onebitSuccess);
    EXPECT_STREQ(text, way);
    EXPECT_EQ(rank.channel().DescribePeer(1, text, sizeof text), onebitInvalidArgument);
    ASSERT_EQ(rank.channel().Abort(), onebitSuccess);
    EXPECT_EQ(rank.channel().DescribePeer(0, text, sizeof text), onebitSuccess);
  }
}

TEST(UcxProcessTest, LeavesTheSignalHandlersOfTheApplicationAlone) {
  const StartedTransport started;
  struct sigaction action {};
  ASSERT_EQ(sigaction(SIGILL, nullptr, &action), 0);
  EXPECT_EQ(action.sa_handler, SIG_DFL);
}

}  // namespace
}  // namespace onebit::ucx
