// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Checks of endpoints that are aborted before they are connected.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/transports/checks.h"
#include "tests/transports/test_endpoint.h"

namespace onebit::conformance {
namespace {

constexpr uint64_t kConnectMs = 500;

// An endpoint that knows all addresses and is not connected yet.
class UnconnectedEndpoint {
 public:
  UnconnectedEndpoint(const Subject& subject, OutOfBand& oob) {
    const channel::ChannelInfo info{.rank = oob.rank(), .nranks = oob.nranks(), .comm_id = 1};
    Expect(subject.channels->Open(info, &channel_) == onebitSuccess, "Open failed");
    std::string address(subject.properties.addressBytes, '\0');
    size_t bytes = 0;
    Expect(channel_->GetAddress(address.data(), &bytes) == onebitSuccess, "GetAddress failed");
    address.resize(bytes);
    for (const std::string& one : oob.Exchange(address)) {
      addresses_.push_back(testing::CopyOf(BytesOf(one)));
    }
  }

  // The address of the last rank is cut to `most_bytes`.
  onebitResult_t Connect(size_t most_bytes = SIZE_MAX) {
    std::vector<std::vector<std::byte>> addresses = addresses_;
    addresses.back().resize(std::min(addresses.back().size(), most_bytes));
    return channel_->Connect(addresses, kConnectMs);
  }
  void Abort() { Expect(channel_->Abort() == onebitSuccess, "Abort failed"); }
  void ExpectEveryCallFails() {
    MessageRequest request = nullptr;
    Expect(channel_->Send(0, BytesOf("h"), {}, &request) != onebitSuccess, "Send succeeded");
    Expect(channel_->Wait(1) != onebitSuccess, "Wait succeeded");
  }

 private:
  std::unique_ptr<channel::MessageChannel> channel_;
  std::vector<std::vector<std::byte>> addresses_;
};

}  // namespace

void AbortBeforeConnect(const Subject& subject, OutOfBand& oob) {
  UnconnectedEndpoint endpoint(subject, oob);
  endpoint.Abort();
  Expect(endpoint.Connect() == onebitAborted, "Connect did not say that there was an abort");
  endpoint.ExpectEveryCallFails();
  oob.Barrier();
}

void AbortAfterFailedConnect(const Subject& subject, OutOfBand& oob) {
  UnconnectedEndpoint endpoint(subject, oob);
  const onebitResult_t result = endpoint.Connect(1);
  Expect(result == onebitInvalidArgument, "Connect with half an address returned ", result);
  endpoint.Abort();
  endpoint.ExpectEveryCallFails();
  oob.Barrier();
}

// Rank 0 waits for the others in vain until a thread aborts it. A transport whose Connect waits for
// nobody has nothing to abort. The others connect when rank 0 is gone, and wait in vain as well.
void AbortDuringConnect(const Subject& subject, OutOfBand& oob) {
  UnconnectedEndpoint endpoint(subject, oob);
  if (oob.rank() == 0) {
    std::jthread other([&endpoint] {
      // No event tells that Connect waits, and a transport may poll meanwhile.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      endpoint.Abort();
    });
    const Clock::time_point start = Clock::now();
    const onebitResult_t result = endpoint.Connect();
    Expect(result == onebitAborted || result == onebitSuccess, "Connect returned ", result);
    Expect(IsWithin(start, 5000), "Connect took ", SecondsSince(start), " s");
    other.join();
    endpoint.ExpectEveryCallFails();
  }
  oob.Barrier();
  if (oob.rank() != 0) {
    const Clock::time_point start = Clock::now();
    static_cast<void>(endpoint.Connect());
    Expect(IsWithin(start, 10'000), "Connect took ", SecondsSince(start), " s");
    endpoint.Abort();
    endpoint.ExpectEveryCallFails();
  }
  oob.Barrier();
}

}  // namespace onebit::conformance
