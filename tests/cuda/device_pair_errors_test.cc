// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sends and receives on device memory over a host transport that do not match, or whose peer never
// comes.
#include <chrono>
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
#include "tests/support/deadlines.h"

namespace onebit::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr size_t kCount = 5000;

UniqueCompressor NewPairCompressor(onebitComm_t comm, size_t count, onebitCodec_t codec) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.collective = onebitCollectiveSendRecv;
  config.mode = onebitModePlain;
  config.codec = codec;
  config.memory = onebitMemoryDevice;
  return NewCompressor(comm, count, onebitFloat32, config);
}

struct Difference {
  const char* name;
  size_t received_count;
  onebitCodec_t received_codec;
  bool is_dense;
  const char* text;
};

class DevicePairMismatchTest : public ::testing::TestWithParam<Difference> {};

TEST_P(DevicePairMismatchTest, BothRanksLearnIt) {
  const Difference& difference = GetParam();
  CommGroup group(2);
  group.Run([&](int rank) {
    UseCudaDevice(rank);
    const onebitComm_t comm = group.comm(rank);
    const CudaStream stream;
    const CudaBuffer buffer(2 * kCount * sizeof(float));
    UniqueCompressor compressor;
    if (rank == 0) {
      if (!difference.is_dense) compressor = NewPairCompressor(comm, kCount, onebitCodecInt8);
      EXPECT_EQ(onebitSend(buffer.data(), kCount, onebitFloat32, 1, compressor.get(), comm,
                           stream.handle()),
                onebitSuccess)
          << onebitGetLastError(nullptr);
    } else {
      if (!difference.is_dense) {
        compressor = NewPairCompressor(comm, difference.received_count, difference.received_codec);
      }
      EXPECT_EQ(onebitRecv(buffer.data(), difference.received_count, onebitFloat32, 0,
                           compressor.get(), comm, stream.handle()),
                onebitSuccess)
          << onebitGetLastError(nullptr);
    }
    const Outcome outcome = AwaitError(comm);
    if (rank == 1) {
      EXPECT_EQ(outcome.result, onebitMismatch);
    } else {
      EXPECT_THAT(outcome.result, AnyOf(onebitMismatch, onebitRemoteError));
    }
    EXPECT_THAT(outcome.text, HasSubstr(difference.text));
    stream.Synchronize();  // it goes on, with undefined output
  });
}

INSTANTIATE_TEST_SUITE_P(Differences, DevicePairMismatchTest,
                         ::testing::Values(Difference{"Count", kCount + 1, onebitCodecInt8, true,
                                                      "count 5001 here, 5000 there"},
                                           Difference{"CountOfPackets", kCount + 1, onebitCodecInt8,
                                                      false, "count 5001 here, 5000 there"},
                                           Difference{"Codec", kCount, onebitCodecFp4, false,
                                                      "codec fp4 here, int8 there"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(DevicePairTest, APeerThatNeverComesIsNamed) {
  for (const bool is_compressed : {false, true}) {
    CommGroup group(3, {.timeout_ms = PacedMs(300), .one_exchange_elements = 0});
    group.Run([&](int rank) {
      UseCudaDevice(rank);
      const onebitComm_t comm = group.comm(rank);
      if (rank == 2) return;  // rank 0 waits for it
      const CudaStream stream;
      const CudaBuffer buffer(kCount * sizeof(float));
      const UniqueCompressor compressor =
          is_compressed ? NewPairCompressor(comm, kCount, onebitCodecInt8) : UniqueCompressor();
      if (rank == 0) {
        EXPECT_EQ(onebitRecv(buffer.data(), kCount, onebitFloat32, 2, compressor.get(), comm,
                             stream.handle()),
                  onebitSuccess)
            << onebitGetLastError(nullptr);
      }
      const Outcome outcome = AwaitError(comm);
      if (rank == 0) {
        EXPECT_EQ(outcome.result, onebitTimeout);
        EXPECT_THAT(outcome.text, HasSubstr("receive from rank 2"));
        EXPECT_THAT(outcome.text, HasSubstr("waiting for rank 2"));
      }
      stream.Synchronize();
    });
  }
}

// Two pairs have the same ages; the receiver of one gets what the other has received.
TEST(DevicePairTest, DifferentEstimatesAreFoundByTheirChecksum) {
  CommGroup group(2);
  group.Run([&](int rank) {
    UseCudaDevice(rank);
    const onebitComm_t comm = group.comm(rank);
    const CudaStream stream;
    CudaBuffer buffer(kCount * sizeof(float));
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.collective = onebitCollectiveSendRecv;
    config.memory = onebitMemoryDevice;
    const UniqueCompressor first = NewCompressor(comm, kCount, onebitFloat32, config);
    const UniqueCompressor second = NewCompressor(comm, kCount, onebitFloat32, config);
    const auto call = [&](const UniqueCompressor& compressor, float value) {
      if (rank == 0) {
        const std::vector<float> values(kCount, value);
        const auto bytes = std::as_bytes(std::span(values));
        buffer.Write(bytes);
        return onebitSend(buffer.data(), kCount, onebitFloat32, 1, compressor.get(), comm,
                          stream.handle());
      }
      return onebitRecv(buffer.data(), kCount, onebitFloat32, 0, compressor.get(), comm,
                        stream.handle());
    };
    ASSERT_EQ(call(first, 1), onebitSuccess) << onebitGetLastError(nullptr);
    stream.Synchronize();
    ASSERT_EQ(call(second, 2), onebitSuccess) << onebitGetLastError(nullptr);
    stream.Synchronize();
    if (rank == 1) {
      size_t bytes = 0;
      onebitCompressorExport(second.get(), onebitStateRank, nullptr, &bytes);
      std::vector<std::byte> state(bytes);
      onebitCompressorExport(second.get(), onebitStateRank, state.data(), &bytes);
      ASSERT_EQ(onebitCompressorImport(first.get(), state.data(), bytes), onebitSuccess);
    }
    int made = 0;
    while (made < 20 && call(first, 1) == onebitSuccess) {
      stream.Synchronize();
      ++made;
    }
    EXPECT_GE(made, 15);
    const Outcome outcome = AwaitError(comm);
    if (rank == 1) {
      EXPECT_EQ(outcome.result, onebitMismatch);
    }
    EXPECT_THAT(outcome.text, HasSubstr("hold different values of what rank 0 sends"));
  });
}

// Calls that are enqueued behind a failure commit nothing.
TEST(DevicePairTest, CallsBehindAFailureAreNotMade) {
  CommGroup group(2, {.timeout_ms = PacedMs(300), .one_exchange_elements = 0});
  group.Run([&](int rank) {
    if (rank == 1) return;
    UseCudaDevice(0);
    const onebitComm_t comm = group.comm(0);
    const CudaStream stream;
    const CudaBuffer buffer(kCount * sizeof(float));
    const UniqueCompressor compressor = NewPairCompressor(comm, kCount, onebitCodecInt8);
    for (int call = 0; call < 3; ++call) {
      const onebitResult_t result = onebitRecv(buffer.data(), kCount, onebitFloat32, 1,
                                               compressor.get(), comm, stream.handle());
      EXPECT_THAT(result, AnyOf(onebitSuccess, onebitTimeout));
    }
    EXPECT_EQ(AwaitError(comm).result, onebitTimeout);
    stream.Synchronize();
    EXPECT_EQ(StatsOf(compressor.get()).epoch, 0u);
  });
}

}  // namespace
}  // namespace onebit::testing
