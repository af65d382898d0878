// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Threads that open, connect and close.
#include "tests/nccl/ranks.h"

#include <thread>
#include <utility>

namespace onebit::testing {

onebitResult_t Endpoint::Open(const Plugin& plugin, int rank, int ranks, uint64_t comm_id,
                              void* group) {
  const onebitTransportCommInfo info{
      .structSize = sizeof info, .rank = rank, .nranks = ranks, .commId = comm_id, .group = group};
  return table().open(plugin.transport_context(), &info, &comm_);
}

std::vector<std::byte> Endpoint::Address() const {
  onebitTransportProperties properties{.structSize = sizeof properties};
  EXPECT_EQ(table().getProperties(nullptr, &properties), onebitSuccess);
  std::vector<std::byte> address(properties.addressBytes);
  size_t bytes = address.size();
  EXPECT_EQ(table().getAddress(comm_, address.data(), &bytes), onebitSuccess);
  address.resize(bytes);
  return address;
}

onebitResult_t Endpoint::Connect(const std::vector<std::vector<std::byte>>& addresses,
                                 uint64_t timeout_ms) {
  std::vector<const void*> pointers;
  std::vector<size_t> sizes;
  for (const auto& address : addresses) {
    pointers.push_back(address.data());
    sizes.push_back(address.size());
  }
  return table().connect(comm_, pointers.data(), sizes.data(), timeout_ms);
}

void Endpoint::Close() {
  if (comm_ != nullptr) {
    EXPECT_EQ(table().close(std::exchange(comm_, nullptr)), onebitSuccess);
  }
}

onebitResult_t Endpoint::AsyncError(std::string* text) {
  char buffer[512] = "";
  const onebitResult_t result = table().asyncError(comm_, buffer, sizeof buffer);
  if (text != nullptr) *text = buffer;
  return result;
}

void RunThreads(int count, const std::function<void(int thread)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([i, &body] {
      const UseDevice device(i);
      body(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void RunRanks(const Plugin& plugin, int ranks, const std::function<void(Rank&)>& body) {
  ASSERT_EQ(plugin.start_result(), onebitSuccess) << Plugin::warnings();
  AddressExchange exchange(ranks);
  RunThreads(ranks, [&](int rank) {
    const Stream stream;
    Endpoint endpoint;
    EXPECT_EQ(endpoint.Open(plugin, rank, ranks), onebitSuccess) << Plugin::warnings();
    EXPECT_EQ(endpoint.Connect(exchange.Exchange(rank, endpoint.Address())), onebitSuccess)
        << Plugin::warnings();
    exchange.Wait();
    Rank self{.rank = rank, .ranks = ranks, .endpoint = &endpoint, .stream = &stream, .meet = [&] {
                exchange.Wait();
              }};
    body(self);
  });
}

}  // namespace onebit::testing
