// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Properties that only transport `local` has: settings, addresses, limits and texts.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "channel/message_channel.h"
#include "plugins/transport_local/local_context.h"
#include "tests/support/bytes_of.h"
#include "tests/transports/local_fixture.h"

namespace onebit::local {
namespace {

using testing::BytesOf;
using testing::WritableBytesOf;

// Channels of `nranks` ranks, driven by the thread of the test once they are connected.
class Group final : private channel::PeerErrorSink {
 public:
  Group(const StartedTransport& started, int nranks, uint64_t comm_id = 1)
      : channels_(static_cast<size_t>(nranks)) {
    for (int rank = 0; rank < nranks; ++rank) {
      const channel::ChannelInfo info{
          .rank = rank, .nranks = nranks, .comm_id = comm_id, .sink = this};
      auto& channel = channels_[static_cast<size_t>(rank)];
      EXPECT_EQ(started.channels().Open(info, &channel), onebitSuccess);
      Address address;
      size_t bytes = 0;
      EXPECT_EQ(channel->GetAddress(&address, &bytes), onebitSuccess);
      addresses.push_back(address);
    }
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  onebitResult_t Connect(size_t rank) {
    std::vector<std::vector<std::byte>> all;
    for (const Address& address : addresses) {
      all.push_back(testing::CopyOf(BytesOf(&address, sizeof address)));
    }
    return channels_[rank]->Connect(all, 30'000);
  }
  // Ranks greet each other, so each needs a thread.
  void ConnectAll() {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < channels_.size(); ++rank) {
      threads.emplace_back([this, rank] { EXPECT_EQ(Connect(rank), onebitSuccess); });
    }
  }
  void Close(size_t rank) { channels_[rank].reset(); }
  channel::MessageChannel& operator[](size_t rank) const { return *channels_[rank]; }

  std::vector<Address> addresses;  // a test may change them before it connects
  std::string peer_error_text;     // of the last report

 private:
  void OnPeerError(int /*peer*/, Code /*code*/, const char* text) override {
    peer_error_text = text;
  }

  std::vector<std::unique_ptr<channel::MessageChannel>> channels_;
};

TEST(LocalSettingsTest, ReadsEagerBytes) {
  const StartedTransport started("4096");
  ASSERT_EQ(started.start_result(), onebitSuccess);
  EXPECT_EQ(started.properties().eagerBytes, 4096u);
}

TEST(LocalSettingsTest, NamesABadValue) {
  for (const char* value : {"many", "65537", "-1", "12x", " 12"}) {
    const StartedTransport started(value);
    EXPECT_EQ(started.start_result(), onebitInvalidUsage) << value;
    EXPECT_EQ(started.warnings(), std::string("environment variable ONEBIT_LOCAL_EAGER_BYTES: \"") +
                                      value + "\" is not bytes, 0 to 65536");
  }
}

TEST(LocalSettingsTest, AreKnownBeforeInit) {
  onebitTransportProperties properties{.structSize = sizeof properties};
  ASSERT_EQ(Functions()->getProperties(nullptr, &properties), onebitSuccess);
  ASSERT_EQ(properties.settingCount, 1u);
  EXPECT_STREQ(properties.settings[0].name, "ONEBIT_LOCAL_EAGER_BYTES");
  EXPECT_EQ(properties.eagerBytes, 0u);
}

TEST(LocalSettingsTest, EagerBytesHaveADefault) {
  const StartedTransport started;
  EXPECT_EQ(started.properties().eagerBytes, 1024u);
}

TEST(LocalConnectTest, RefusesAnAddressOfAnotherProcess) {
  const StartedTransport started;
  Group group(started, 2);
  group.addresses[1].process_id += 1;
  EXPECT_EQ(group.Connect(0), onebitInvalidUsage);
  EXPECT_EQ(
      started.warnings(),
      "local: rank 1 is in another process; this transport joins threads of one process only");
}

TEST(LocalConnectTest, RefusesForeignBytes) {
  const StartedTransport started;
  Group group(started, 2);
  std::memset(&group.addresses[1], 0x5a, sizeof(Address));
  EXPECT_EQ(group.Connect(0), onebitInvalidArgument);
}

TEST(LocalConnectTest, RefusesAnEndpointThatIsClosed) {
  const StartedTransport started;
  Group group(started, 2);
  group.Close(1);
  EXPECT_EQ(group.Connect(0), onebitRemoteError);
}

TEST(LocalConnectTest, RefusesRanksInTheWrongOrder) {
  const StartedTransport started;
  Group group(started, 2);
  std::swap(group.addresses[0], group.addresses[1]);
  EXPECT_EQ(group.Connect(0), onebitInvalidArgument);
}

TEST(LocalConnectTest, RefusesAnotherCommunicator) {
  const StartedTransport started;
  Group group(started, 2, 7);
  Group other(started, 2, 8);
  group.addresses[1] = other.addresses[1];
  EXPECT_EQ(group.Connect(0), onebitInvalidArgument);
  EXPECT_EQ(started.warnings(),
            "local: the address of rank 1 belongs to rank 1 of 2 in communicator 8");
}

TEST(LocalFinalizeTest, RefusesWhileAnEndpointIsOpen) {
  const StartedTransport started;
  const Group group(started, 1);
  EXPECT_EQ(started.transport().finalize(started.transport_context()), onebitInvalidUsage);
}

class LocalMessageTest : public ::testing::Test {
 protected:
  LocalMessageTest() : group_(started_, 2) { group_.ConnectAll(); }

  onebitResult_t Send(size_t bytes, MessageRequest* request) {
    return group_[0].Send(1, BytesOf("h"), BytesOf(payload_.data(), bytes), request);
  }
  MessageRequest ReceiveHeader(char* header) {
    MessageRequest request = nullptr;
    EXPECT_EQ(group_[1].Receive(0, WritableBytesOf(header, kMessageHeaderBytes), &request),
              onebitSuccess);
    EXPECT_EQ(StateOf(1, request), TransferState::kHeader);
    return request;
  }
  // After both ranks have made progress.
  onebitResult_t Test(size_t rank, MessageRequest request, TransferState* state) {
    for (const size_t one : {0, 1, 0}) EXPECT_EQ(group_[one].Progress(), onebitSuccess);
    return group_[rank].Test(request, state);
  }
  TransferState StateOf(size_t rank, MessageRequest request) {
    TransferState state = TransferState::kPending;
    EXPECT_EQ(Test(rank, request, &state), onebitSuccess);
    return state;
  }

  const StartedTransport started_;
  Group group_;
  std::string payload_ = std::string(5000, 's');
  std::string taken_ = std::string(5000, 'b');
};

TEST_F(LocalMessageTest, RefusesArgumentsOutOfRange) {
  MessageRequest request = nullptr;
  char header[kMessageHeaderBytes];
  channel::MessageChannel& channel = group_[0];
  EXPECT_EQ(channel.Send(2, BytesOf("h"), {}, &request), onebitInvalidArgument);
  EXPECT_EQ(channel.Send(-1, BytesOf("h"), {}, &request), onebitInvalidArgument);
  EXPECT_EQ(channel.Send(1, BytesOf(std::string(65, 'h')), {}, &request), onebitInvalidArgument);
  EXPECT_EQ(channel.Receive(2, WritableBytesOf(header, 64), &request), onebitInvalidArgument);
  EXPECT_EQ(channel.Receive(-1, WritableBytesOf(header, 64), &request), onebitInvalidArgument);
  EXPECT_EQ(channel.Receive(1, WritableBytesOf(header, 63), &request), onebitInvalidArgument);
}

TEST_F(LocalMessageTest, RefusesASecondReceiveBeforeTheHeader) {
  MessageRequest request = nullptr;
  char header[kMessageHeaderBytes];
  EXPECT_EQ(group_[1].Receive(0, WritableBytesOf(header, sizeof header), &request), onebitSuccess);
  EXPECT_EQ(group_[1].Receive(0, WritableBytesOf(header, sizeof header), &request),
            onebitInvalidUsage);
}

TEST_F(LocalMessageTest, RefusesToAcceptAnotherSize) {
  MessageRequest send = nullptr;
  char header[kMessageHeaderBytes];
  ASSERT_EQ(Send(5000, &send), onebitSuccess);
  const auto receive = ReceiveHeader(header);
  for (const size_t bytes : {4999, 5001}) {
    EXPECT_EQ(group_[1].Accept(receive, WritableBytesOf(taken_.data(), bytes)),
              onebitInvalidArgument);
  }
  EXPECT_EQ(taken_, std::string(5000, 'b'));
  EXPECT_EQ(group_[1].Accept(receive, WritableBytesOf(taken_.data(), 5000)), onebitSuccess);
  EXPECT_EQ(StateOf(1, receive), TransferState::kDone);
  EXPECT_EQ(StateOf(0, send), TransferState::kDone);
  EXPECT_EQ(taken_, payload_);
}

TEST_F(LocalMessageTest, ACancelledReceiveFailsItsSend) {
  MessageRequest send = nullptr;
  TransferState state = TransferState::kPending;
  char header[kMessageHeaderBytes];
  ASSERT_EQ(Send(5000, &send), onebitSuccess);
  ASSERT_EQ(group_[1].Cancel(ReceiveHeader(header)), onebitSuccess);
  EXPECT_EQ(Test(0, send, &state), onebitRemoteError);
  for (int i = 0; i < 20; ++i) {  // the slot can be used again
    ASSERT_EQ(Send(5000, &send), onebitSuccess);
    const auto receive = ReceiveHeader(header);
    ASSERT_EQ(group_[1].Accept(receive, WritableBytesOf(taken_.data(), 5000)), onebitSuccess);
    EXPECT_EQ(StateOf(1, receive), TransferState::kDone);
    EXPECT_EQ(StateOf(0, send), TransferState::kDone);
  }
}

TEST_F(LocalMessageTest, ACancelledSendFailsItsAcceptedReceive) {
  MessageRequest send = nullptr;
  TransferState state = TransferState::kPending;
  char header[kMessageHeaderBytes];
  ASSERT_EQ(Send(5000, &send), onebitSuccess);
  const auto receive = ReceiveHeader(header);
  ASSERT_EQ(group_[0].Cancel(send), onebitSuccess);
  EXPECT_EQ(group_[1].Accept(receive, WritableBytesOf(taken_.data(), 5000)), onebitSuccess);
  EXPECT_EQ(Test(1, receive, &state), onebitRemoteError);
  EXPECT_EQ(taken_, std::string(5000, 'b'));
}

TEST_F(LocalMessageTest, ACancelledSendIsSkipped) {
  MessageRequest first = nullptr;
  MessageRequest second = nullptr;
  char header[kMessageHeaderBytes];
  ASSERT_EQ(Send(5000, &first), onebitSuccess);
  ASSERT_EQ(Send(10, &second), onebitSuccess);
  ASSERT_EQ(group_[0].Cancel(first), onebitSuccess);
  ASSERT_EQ(group_[1].Progress(), onebitSuccess);
  size_t header_bytes = 0;
  size_t payload_bytes = 0;
  ASSERT_EQ(group_[1].Probe(*ReceiveHeader(header), &header_bytes, &payload_bytes), onebitSuccess);
  EXPECT_EQ(payload_bytes, 10u);
}

TEST_F(LocalMessageTest, RefusesARequestThatIsOver) {
  MessageRequest request = nullptr;
  char header[kMessageHeaderBytes];
  TransferState state = TransferState::kPending;
  ASSERT_EQ(group_[1].Receive(0, WritableBytesOf(header, sizeof header), &request), onebitSuccess);
  ASSERT_EQ(group_[1].Cancel(request), onebitSuccess);
  EXPECT_EQ(group_[1].Cancel(request), onebitInvalidUsage);
  EXPECT_EQ(group_[1].Test(request, &state), onebitInvalidUsage);
}

// The receiver copies straight from the sender's memory when it accepts, and not before.
TEST_F(LocalMessageTest, ALargePayloadIsCopiedWhenItIsAccepted) {
  MessageRequest send = nullptr;
  char header[kMessageHeaderBytes];
  ASSERT_EQ(Send(5000, &send), onebitSuccess);
  const auto receive = ReceiveHeader(header);
  payload_.assign(5000, 'n');
  ASSERT_EQ(group_[1].Accept(receive, WritableBytesOf(taken_.data(), 5000)), onebitSuccess);
  EXPECT_EQ(taken_, std::string(5000, 'n'));
  EXPECT_EQ(StateOf(1, receive), TransferState::kDone);
  EXPECT_EQ(StateOf(0, send), TransferState::kDone);
}

TEST_F(LocalMessageTest, SaysHowAPeerEnded) {
  MessageRequest request = nullptr;
  ASSERT_EQ(group_[0].Abort(), onebitSuccess);
  EXPECT_EQ(group_[1].Progress(), onebitSuccess);
  EXPECT_EQ(group_[1].Send(0, BytesOf("h"), {}, &request), onebitRemoteError);
  EXPECT_EQ(group_.peer_error_text, "rank 0 has aborted its endpoint");

  Group other(started_, 2, 2);
  other.ConnectAll();
  other.Close(0);
  EXPECT_EQ(other[1].Progress(), onebitSuccess);
  EXPECT_EQ(other[1].Send(0, BytesOf("h"), {}, &request), onebitRemoteError);
  EXPECT_EQ(other.peer_error_text,
            "rank 0 has left (its program ended, or destroyed the communicator) while others "
            "wait");
}

}  // namespace
}  // namespace onebit::local
