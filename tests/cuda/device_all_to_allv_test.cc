// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Dense all-to-all-vs on device memory over a host transport: long messages pass in pieces through
// a fixed amount of pinned memory, although only the two ranks of a pair know their length.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onebit/parts.h"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/stream_gate.h"
#include "tests/support/comm_group.h"
#include "tests/support/cuda/cuda_stand_in.h"
#include "tests/support/deadlines.h"

namespace onebit::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

using Bytes = std::vector<std::byte>;

constexpr int kRanks = 3;
constexpr size_t kSlotBytes = size_t{8} << 20;
constexpr size_t kSharedBytes = size_t{64} << 10;

// The elements of each message that pass together.
constexpr size_t PieceOf(size_t element_bytes) {
  return kSlotBytes / (2 * kRanks * element_bytes) / 64 * 64;
}
constexpr size_t kPiece = PieceOf(sizeof(float));

// counts[from][to]
using Counts = std::vector<std::vector<size_t>>;

struct Call {
  onebitDataType_t type;
  size_t element_bytes;
  Counts counts;
};

// The arguments of one rank. Ranges of both buffers have gaps between them, and those of the output
// are in another order.
struct Arguments {
  std::vector<size_t> send_counts, send_begins, receive_counts, receive_begins;
  size_t send_elements = 3;
  size_t receive_elements = 5;

  Arguments(const Counts& counts, size_t rank)
      : send_counts(counts[rank]), send_begins(kRanks), receive_begins(kRanks) {
    for (size_t peer = 0; peer < kRanks; ++peer) {
      receive_counts.push_back(counts[peer][rank]);
      send_begins[peer] = send_elements;
      send_elements += send_counts[peer] + 1;
    }
    for (size_t peer = kRanks; peer-- > 0;) {
      receive_begins[peer] = receive_elements;
      receive_elements += receive_counts[peer] + 2;
    }
  }
  onebitResult_t Make(const void* in, void* out, onebitDataType_t type, onebitComm_t comm,
                      onebitStream_t stream) const {
    return onebitAllToAllv(in, send_counts.data(), send_begins.data(), out, receive_counts.data(),
                           receive_begins.data(), type, nullptr, comm, stream);
  }
};

// Repeats random bytes, because a build with sanitizers takes long to draw many. No piece begins at
// a multiple of their number.
Bytes RandomBytes(size_t bytes, unsigned seed) {
  constexpr size_t kDrawn = 10'007;
  std::mt19937 random(seed);
  Bytes result(bytes);
  for (std::byte& byte : std::span(result).first(std::min(bytes, kDrawn))) {
    byte = static_cast<std::byte>(random());
  }
  for (size_t at = kDrawn; at < bytes; at += kDrawn) {
    std::memcpy(&result[at], result.data(), std::min(bytes - at, kDrawn));
  }
  return result;
}

// Outputs of the calls by rank, of which the first ones are on devices. All calls are enqueued
// before the first is awaited.
std::vector<std::vector<Bytes>> OutputsOf(const std::vector<Call>& calls, int on_device) {
  std::vector<std::vector<Bytes>> outputs(kRanks);
  CommGroup group(kRanks);
  std::barrier everybody(kRanks);
  group.Run([&](int rank) {
    UseCudaDevice(rank);
    const CudaStream stream;
    const auto index = static_cast<size_t>(rank);
    std::vector<Bytes> hosts;
    std::vector<CudaBuffer> inputs, devices;
    for (size_t i = 0; i < calls.size(); ++i) {
      const Arguments arguments(calls[i].counts, index);
      const auto seed = static_cast<unsigned>(kRanks * i + index);
      const Bytes in = RandomBytes(arguments.send_elements * calls[i].element_bytes, seed);
      hosts.emplace_back(arguments.receive_elements * calls[i].element_bytes, std::byte{0x5a});
      const bool is_on_device = rank < on_device;
      inputs.emplace_back(in);
      devices.emplace_back(hosts.back());
      EXPECT_EQ(is_on_device ? arguments.Make(inputs.back().data(), devices.back().data(),
                                              calls[i].type, group.comm(rank), stream.handle())
                             : arguments.Make(in.data(), hosts.back().data(), calls[i].type,
                                              group.comm(rank), nullptr),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      if (is_on_device) continue;
      devices.back().Write(hosts.back());
    }
    stream.Synchronize();
    everybody.arrive_and_wait();
    const auto on_devices = static_cast<size_t>(on_device);
    EXPECT_LE(onebitTestCudaAllocatedBytes(-1), on_devices * (2 * kSlotBytes + kSharedBytes));
    everybody.arrive_and_wait();
    for (const CudaBuffer& device : devices) outputs[index].push_back(device.Read());
  });
  return outputs;
}

TEST(DeviceAllToAllvTest, LongMessagesPassInPieces) {
  const size_t p = kPiece, b = PieceOf(1), d = PieceOf(8);
  const std::vector<Call> calls = {
      {onebitFloat32, 4, {{2 * p, 5 * p, 0}, {p, 0, 3 * p + 7}, {p + 1, p - 1, 1}}},
      {onebitFloat32, 4, {{0, 1, 2}, {3, 0, 0}, {p, 9, 100}}},
      {onebitFloat32, 4, {{0, 0, 0}, {0, 3 * p, 0}, {0, 0, 0}}},
      {onebitFloat32, 4, {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}},
      {onebitUint8, 1, {{b, 0, 2 * b + 1}, {b + 1, 3, 0}, {0, b, 0}}},
      {onebitFloat64, 8, {{0, d, 2 * d}, {3 * d, 0, 1}, {0, 2 * d + 1, 5}}},
      {onebitFloat32, 4, {{0, 4 * p, p}, {0, p, 0}, {2 * p, 0, 6 * p}}}};
  EXPECT_TRUE(OutputsOf(calls, kRanks) == OutputsOf(calls, 0));
}

TEST(DeviceAllToAllvTest, RanksOnHostsTakePartUpToAPiece) {
  const size_t p = kPiece;
  const std::vector<Call> calls = {
      {onebitFloat32, 4, {{p, p, 0}, {p - 1, 7, p}, {1, p, p}}},
      // Messages of a rank to itself, or between hosts, may be longer.
      {onebitFloat32, 4, {{2 * p, p, 5}, {0, 3 * p, 2 * p}, {p, 3 * p, 0}}}};
  EXPECT_TRUE(OutputsOf(calls, 1) == OutputsOf(calls, 0));
}

// The ranks share a stream, where a rank must not wait for another one's call that is behind the
// pieces of a longer message.
TEST(DeviceAllToAllvTest, OneThreadMakesTheCallsOfAllRanksOnOneStream) {
  const Counts counts = {{5 * kPiece, 1, 0}, {kPiece + 1, 2, 1}, {0, 3, kPiece}};
  constexpr size_t kSummed = 1000;
  const auto expected = OutputsOf({{onebitFloat32, sizeof(float), counts}}, 0);
  CommGroup group(kRanks);
  UseCudaDevice(0);
  const CudaStream stream;
  std::vector<CudaBuffer> inputs, outputs, numbers;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    const Arguments arguments(counts, rank);
    inputs.emplace_back(
        RandomBytes(arguments.send_elements * sizeof(float), static_cast<unsigned>(rank)));
    outputs.emplace_back(Bytes(arguments.receive_elements * sizeof(float), std::byte{0x5a}));
    numbers.emplace_back(Bytes(kSummed, std::byte{1}));
  }
  ASSERT_EQ(onebitGroupStart(), onebitSuccess);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    const onebitComm_t comm = group.comm(static_cast<int>(rank));
    EXPECT_EQ(
        Arguments(counts, rank)
            .Make(inputs[rank].data(), outputs[rank].data(), onebitFloat32, comm, stream.handle()),
        onebitSuccess);
    EXPECT_EQ(onebitAllReduce(numbers[rank].data(), numbers[rank].data(), kSummed, onebitUint8,
                              onebitSum, nullptr, comm, stream.handle()),
              onebitSuccess);
  }
  ASSERT_EQ(onebitGroupEnd(), onebitSuccess) << onebitGetLastError(nullptr);
  stream.Synchronize();
  for (size_t rank = 0; rank < kRanks; ++rank) {
    onebitResult_t result = onebitInternalError;
    const onebitComm_t comm = group.comm(static_cast<int>(rank));
    EXPECT_EQ(onebitCommGetAsyncError(comm, &result), onebitSuccess);
    EXPECT_EQ(result, onebitSuccess) << onebitGetLastError(comm);
    EXPECT_TRUE(outputs[rank].Read() == expected[rank][0]) << rank;
    EXPECT_TRUE(numbers[rank].Read() == Bytes(kSummed, std::byte{kRanks})) << rank;
  }
}

// The message from rank 0 to rank 1, as each of them believes it to be.
struct Lengths {
  const char* name;
  size_t sent;
  size_t received;
  const char* text;
  bool is_receiver_on_device = true;
};

class DeviceAllToAllvMismatchTest : public ::testing::TestWithParam<Lengths> {};

TEST_P(DeviceAllToAllvMismatchTest, IsFoundAtTheFirstPiece) {
  const Lengths& lengths = GetParam();
  CommGroup group(kRanks);
  std::vector<Outcome> outcomes(kRanks);
  group.Run([&](int rank) {
    UseCudaDevice(rank);
    Counts counts(kRanks, std::vector<size_t>(kRanks, 10));
    counts[0][1] = rank == 0 ? lengths.sent : lengths.received;
    const Arguments arguments(counts, static_cast<size_t>(rank));
    const CudaStream stream;
    const CudaBuffer in(arguments.send_elements * sizeof(float));
    const CudaBuffer out(arguments.receive_elements * sizeof(float));
    Bytes host_in(arguments.send_elements * sizeof(float));
    Bytes host_out(arguments.receive_elements * sizeof(float));
    const onebitComm_t comm = group.comm(rank);
    Outcome& outcome = outcomes[static_cast<size_t>(rank)];
    if (rank == 1 && !lengths.is_receiver_on_device) {
      outcome = CallHere([&] {
        return arguments.Make(host_in.data(), host_out.data(), onebitFloat32, comm, nullptr);
      });
      return;
    }
    outcome = CallHere([&] {
      return arguments.Make(in.data(), out.data(), onebitFloat32, comm, stream.handle());
    });
    if (outcome.result == onebitSuccess) outcome = AwaitError(comm);
    stream.Synchronize();  // it goes on, with undefined output
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_FALSE(HasRunIntoDeadline(outcome)) << outcome.text;
    EXPECT_THAT(outcome.result, AnyOf(onebitMismatch, onebitRemoteError)) << outcome.text;
  }
  EXPECT_EQ(outcomes[1].result, onebitMismatch) << outcomes[1].text;
  EXPECT_THAT(outcomes[1].text, HasSubstr(lengths.text));
}

INSTANTIATE_TEST_SUITE_P(
    Lengths, DeviceAllToAllvMismatchTest,
    ::testing::Values(Lengths{"OneIsEmpty", 5, 0, "recvcounts has 0 here, sendcounts 5 there"},
                      Lengths{"TheOtherIsEmpty", 0, 5, "recvcounts has 5 here, sendcounts 0 there"},
                      Lengths{"OfOnePiece", kPiece, kPiece - 1,
                              "recvcounts has 349503 here, sendcounts 349504 there"},
                      Lengths{"OnePieceMoreIsSent", 2 * kPiece, kPiece,
                              "recvcounts has 349504 here, sendcounts 699008 there"},
                      Lengths{"OnePieceMoreIsReceived", kPiece, 2 * kPiece,
                              "recvcounts has 699008 here, sendcounts 349504 there"},
                      Lengths{"InTheLastPiece", 3 * kPiece + 5, 3 * kPiece + 6,
                              "recvcounts has 1048518 here, sendcounts 1048517 there"},
                      Lengths{"TheReceiverIsOnTheHost", 2 * kPiece, 2 * kPiece,
                              "sent 1398016 bytes of a message of 699008 elements, not 2796032",
                              false}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace onebit::testing
