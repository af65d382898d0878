// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls in full precision of compressors on device memory: they give what they give on the host,
// as do the calls before and behind them.
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "onebit/parts.h"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/device_ranks.h"

namespace onebit::testing {
namespace {

using Bytes = std::vector<std::byte>;
using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr size_t kCount = 900;

struct Kind {
  onebitCollective_t collective = onebitCollectiveAllReduce;
  onebitCodec_t codec = onebitCodecSign;
  onebitRedOp_t op = onebitAvg;
  int32_t is_transactional = 1;
};

std::string LastError() { return onebitGetLastError(nullptr); }

bool HasSentParts(const Kind& kind) {
  return kind.collective == onebitCollectiveReduceScatter ||
         kind.collective == onebitCollectiveAllToAll;
}
bool HasReceivedParts(const Kind& kind) {
  return kind.collective == onebitCollectiveAllGather ||
         kind.collective == onebitCollectiveAllToAll;
}

Bytes InputOf(const Kind& kind, int rank, int call) {
  std::mt19937 random(static_cast<unsigned>(10 * call + rank));
  std::vector<float> values(kCount * (HasSentParts(kind) ? kRanks : 1));
  for (float& value : values) value = std::ldexp(static_cast<float>(random() % 512) - 255.5f, -8);
  Bytes bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// The calls of one rank: three, one in full precision, and two more.
class Calls {
 public:
  Calls(onebitComm_t comm, int rank, const Kind& kind, bool is_on_device)
      : comm_(comm), rank_(rank), kind_(kind), is_on_device_(is_on_device) {
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.collective = kind.collective;
    config.codec = kind.codec;
    config.block = 64;
    config.transactional = kind.is_transactional;
    if (is_on_device) config.memory = onebitMemoryDevice;
    onebitCompressor_t created = nullptr;
    if (onebitCompressorCreate(&created, comm, kCount, onebitFloat32, &config) != onebitSuccess) {
      throw std::runtime_error(LastError());
    }
    compressor_ = UniqueCompressor(created);
  }

  std::vector<Bytes> Run() {
    std::vector<Bytes> outputs;
    for (int call = 0; call < 6; ++call) {
      outputs.push_back(Make(InputOf(kind_, rank_, call), call == 3));
    }
    return outputs;
  }
  // Returns the output.
  Bytes Make(const Bytes& input, bool is_prime) {
    Bytes output(kCount * (HasReceivedParts(kind_) ? kRanks : 1) * sizeof(float));
    if (!is_on_device_) {
      EXPECT_EQ(MakeOn(input.data(), output.data(), is_prime, nullptr), onebitSuccess)
          << LastError();
      return output;
    }
    const CudaStream stream;
    const CudaBuffer from(input);
    const CudaBuffer to(output);
    EXPECT_EQ(MakeOn(from.data(), to.data(), is_prime, stream.handle()), onebitSuccess)
        << LastError();
    EXPECT_TRUE(!is_prime || stream.IsIdle()) << "it blocks";
    stream.Synchronize();
    return to.Read();
  }
  onebitResult_t MakeOn(const void* from, void* to, bool is_prime, onebitStream_t stream) {
    if (is_prime) return onebitCompressorPrime(compressor_.get(), from, to, kind_.op, stream);
    switch (kind_.collective) {
      case onebitCollectiveReduceScatter:
        return onebitReduceScatter(from, to, kCount, onebitFloat32, kind_.op, compressor_.get(),
                                   comm_, stream);
      case onebitCollectiveAllGather:
        return onebitAllGather(from, to, kCount, onebitFloat32, compressor_.get(), comm_, stream);
      case onebitCollectiveAllToAll:
        return onebitAllToAll(from, to, kCount, onebitFloat32, compressor_.get(), comm_, stream);
      default:
        return onebitAllReduce(from, to, kCount, onebitFloat32, kind_.op, compressor_.get(), comm_,
                               stream);
    }
  }
  onebitCompressorStats_t Stats() const {
    onebitCompressorStats_t stats{};
    stats.size = sizeof(stats);
    EXPECT_EQ(onebitCompressorGetStats(compressor_.get(), &stats), onebitSuccess);
    return stats;
  }

 private:
  const onebitComm_t comm_;
  const int rank_;
  const Kind kind_;
  const bool is_on_device_;
  UniqueCompressor compressor_;
};

class DevicePrimeTest : public ::testing::TestWithParam<Over> {};

TEST_P(DevicePrimeTest, EveryCollectiveGivesWhatItGivesOnTheHost) {
  const Kind kinds[] = {{},
                        {.op = onebitSum, .is_transactional = 0},
                        {.codec = onebitCodecInt8, .op = onebitSum},
                        {.collective = onebitCollectiveReduceScatter, .codec = onebitCodecFp4},
                        {.collective = onebitCollectiveAllGather},
                        {.collective = onebitCollectiveAllGather, .codec = onebitCodecFp4},
                        {.collective = onebitCollectiveAllToAll}};
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(::testing::Message()
                 << "collective " << kind.collective << " codec " << kind.codec);
    std::vector<std::vector<Bytes>> expected(kRanks);
    RunDeviceRanks(Over::kLocal, kRanks, [&](onebitComm_t comm, int rank) {
      expected[static_cast<size_t>(rank)] = Calls(comm, rank, kind, false).Run();
    });
    RunDeviceRanks(GetParam(), kRanks, [&](onebitComm_t comm, int rank) {
      Calls calls(comm, rank, kind, true);
      EXPECT_EQ(calls.Run(), expected[static_cast<size_t>(rank)]);
      EXPECT_EQ(calls.Stats().epoch, 6u);
    });
  }
}

TEST_P(DevicePrimeTest, ANanChangesNothing) {
  RunDeviceRanks(GetParam(), kRanks, [&](onebitComm_t comm, int rank) {
    const Kind kind;
    Calls calls(comm, rank, kind, true);
    calls.Make(InputOf(kind, rank, 0), false);
    Bytes input = InputOf(kind, rank, 1);
    const float nan = NAN;
    if (rank == 1) std::memcpy(input.data() + 400, &nan, sizeof(nan));
    const Bytes output = calls.Make(input, true);
    float first = 0;
    std::memcpy(&first, output.data(), sizeof(first));
    EXPECT_TRUE(std::isnan(first));
    EXPECT_EQ(calls.Stats().epoch, 1u);
    EXPECT_EQ(calls.Stats().nonfinite_calls, 1u);
  });
}

// The others do not wait for it.
TEST_P(DevicePrimeTest, ACaptureIsRefused) {
  RunDeviceRanks(GetParam(), 1, [&](onebitComm_t comm, int rank) {
    Calls calls(comm, rank, {}, true);
    const CudaStream stream;
    const CudaBuffer buffer(kCount * sizeof(float));
    CudaGraph::Begin(stream);
    EXPECT_EQ(calls.MakeOn(buffer.data(), buffer.data(), true, stream.handle()),
              onebitInvalidUsage);
    EXPECT_THAT(LastError(), HasSubstr("stream is being captured"));
    const CudaGraph graph(stream);
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, DevicePrimeTest, ::testing::Values(Over::kLocal, Over::kNccl),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

}  // namespace
}  // namespace onebit::testing
