// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Checks of endpoints that are aborted before they are connected.
#include <algorithm>
#include <chrono>
#include <cstdint>
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
  UnconnectedEndpoint(const Subject& subject, OutOfBand& oob) : api_(*subject.messages) {
    const MessageInfo info{.rank = oob.rank(), .nranks = oob.nranks(), .comm_id = 1};
    Expect(api_.open(subject.context, &info, &comm_) == onebitSuccess, "open failed");
    std::string address(subject.properties.addressBytes, '\0');
    size_t bytes = 0;
    Expect(api_.getAddress(comm_, address.data(), &bytes) == onebitSuccess, "getAddress failed");
    address.resize(bytes);
    addresses_ = oob.Exchange(address);
  }
  ~UnconnectedEndpoint() { api_.close(comm_); }
  UnconnectedEndpoint(const UnconnectedEndpoint&) = delete;
  UnconnectedEndpoint& operator=(const UnconnectedEndpoint&) = delete;

  // The address of the last rank is cut to `most_bytes`.
  onebitResult_t Connect(size_t most_bytes = SIZE_MAX) {
    std::vector<const void*> addresses;
    std::vector<size_t> bytes;
    for (const std::string& address : addresses_) {
      addresses.push_back(address.data());
      bytes.push_back(address.size());
    }
    bytes.back() = std::min(bytes.back(), most_bytes);
    return api_.connect(comm_, addresses.data(), bytes.data(), kConnectMs);
  }
  void Abort() { Expect(api_.abort(comm_) == onebitSuccess, "abort failed"); }
  void ExpectEveryCallFails() {
    MessageRequest request = nullptr;
    Expect(api_.isend(comm_, 0, "h", 1, nullptr, 0, &request) != onebitSuccess, "isend succeeded");
    Expect(api_.wait(comm_, 1) != onebitSuccess, "wait succeeded");
  }

 private:
  const MessageFunctions& api_;
  void* comm_ = nullptr;
  std::vector<std::string> addresses_;
};

}  // namespace

void AbortBeforeConnect(const Subject& subject, OutOfBand& oob) {
  UnconnectedEndpoint endpoint(subject, oob);
  endpoint.Abort();
  Expect(endpoint.Connect() == onebitAborted, "connect did not say that there was an abort");
  endpoint.ExpectEveryCallFails();
  oob.Barrier();
}

void AbortAfterFailedConnect(const Subject& subject, OutOfBand& oob) {
  UnconnectedEndpoint endpoint(subject, oob);
  const onebitResult_t result = endpoint.Connect(1);
  Expect(result == onebitInvalidArgument, "connect with half an address returned ", result);
  endpoint.Abort();
  endpoint.ExpectEveryCallFails();
  oob.Barrier();
}

// Rank 0 waits for the others in vain until a thread aborts it. A transport whose connect waits for
// nobody has nothing to abort. The others connect when rank 0 is gone, and wait in vain as well.
void AbortDuringConnect(const Subject& subject, OutOfBand& oob) {
  UnconnectedEndpoint endpoint(subject, oob);
  if (oob.rank() == 0) {
    std::jthread other([&endpoint] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      endpoint.Abort();
    });
    const Clock::time_point start = Clock::now();
    const onebitResult_t result = endpoint.Connect();
    Expect(result == onebitAborted || result == onebitSuccess, "connect returned ", result);
    Expect(IsWithin(start, 5000), "connect took ", SecondsSince(start), " s");
    other.join();
    endpoint.ExpectEveryCallFails();
  }
  oob.Barrier();
  if (oob.rank() != 0) {
    const Clock::time_point start = Clock::now();
    static_cast<void>(endpoint.Connect());
    Expect(IsWithin(start, 10'000), "connect took ", SecondsSince(start), " s");
    endpoint.Abort();
    endpoint.ExpectEveryCallFails();
  }
  oob.Barrier();
}

}  // namespace onebit::conformance
