// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Groups of dense calls of which some ranks have the buffers on a device and others on the host.
// Ranks on devices cut a group where its dense calls have more than 8 MiB together, because these
// pass through a slot of pinned memory. Ranks on hosts do not.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/stream_gate.h"
#include "tests/support/comm_group.h"
#include "tests/support/deadlines.h"

namespace onebit::testing {
namespace {

using ::testing::AnyOf;

using Bytes = std::vector<std::byte>;

constexpr int kRanks = 3;
constexpr size_t kPartBytes = size_t{24} << 20;  // of a rank's memory: inputs, then outputs
constexpr size_t kCompressed = 3000;

struct Rank {
  int rank;
  onebitComm_t comm;
  onebitStream_t stream;
  onebitCompressor_t compressor;
  std::byte* memory;

  const std::byte* Input(size_t offset) const { return memory + offset; }
  std::byte* Output(size_t offset) const { return memory + kPartBytes + offset; }
};

onebitResult_t AllReduce(const Rank& rank, size_t offset, size_t count,
                         onebitDataType_t type = onebitFloat32,
                         onebitCompressor_t compressor = nullptr) {
  return onebitAllReduce(rank.Input(offset), rank.Output(offset), count, type,
                         compressor == nullptr ? onebitMax : onebitAvg, compressor, rank.comm,
                         rank.stream);
}

struct GroupOfCalls {
  const char* name;
  bool is_cut_alike;
  std::function<onebitResult_t(const Rank&, size_t call)> make;
  size_t calls;
};

// Messages of groups as long as over nccl. A call of more than 1 Mi elements is alone, and one of
// more than 8 MiB passes in pieces.
CommOptions LongMessages() {
  CommOptions options = kPatient;
  options.group_elements = 1'048'576;
  return options;
}

const GroupOfCalls kGroups[] = {
    {"Allreduces", false,
     [](const Rank& rank, size_t call) { return AllReduce(rank, call * 3'600'000, 900'000); }, 5},
    {"ABroadcastFromEach", false,
     [](const Rank& rank, size_t call) {
       return onebitBroadcast(rank.Input(call * 4'000'000), rank.Output(call * 4'000'000),
                              1'000'000, onebitFloat32, static_cast<int>(call), rank.comm,
                              rank.stream);
     },
     kRanks},
    {"ACallInPieces", false,
     [](const Rank& rank, size_t call) {
       if (call == 1) return AllReduce(rank, 0, 100);
       return onebitAllToAll(rank.Input(400), rank.Output(400), 300'000, onebitInt64, nullptr,
                             rank.comm, rank.stream);
     },
     2},
    {"ACompressedCallAndLongOnes", false,
     [](const Rank& rank, size_t call) {
       if (call != 1) return AllReduce(rank, call * 3'600'000, 900'000);
       return AllReduce(rank, 23'000'000, kCompressed, onebitFloat32, rank.compressor);
     },
     4},
    {"SendsBehindLongCalls", false,
     [](const Rank& rank, size_t call) {
       if (call < 3) return AllReduce(rank, call * 3'600'000, 900'000);
       const int to = (rank.rank + 1) % kRanks;
       const int from = (rank.rank + kRanks - 1) % kRanks;
       return call == 3 ? onebitSend(rank.Input(0), 5000, onebitFloat32, to, nullptr, rank.comm,
                                     rank.stream)
                        : onebitRecv(rank.Output(20'000'000), 5000, onebitFloat32, from, nullptr,
                                     rank.comm, rank.stream);
     },
     5},
    {"EightMiB", true,
     [](const Rank& rank, size_t call) { return AllReduce(rank, call << 22, 1 << 20); }, 2},
    {"CallsThatAreAlone", true,
     [](const Rank& rank, size_t call) {
       return AllReduce(rank, call * 6'000'000, 6'000'000, onebitUint8);
     },
     4},
};

// Repeats bytes that are finite numbers of any type: a build with sanitizers takes long to draw
// many.
void FillInputs(unsigned seed, Bytes* memory) {
  constexpr size_t kDrawn = 10'007;
  std::mt19937 random(seed);
  for (std::byte& byte : std::span(*memory).first(kDrawn)) {
    byte = static_cast<std::byte>(random() % 64);
  }
  for (size_t at = kDrawn; at < kPartBytes; at += kDrawn) {
    std::memcpy(memory->data() + at, memory->data(), std::min(kPartBytes - at, kDrawn));
  }
}

class MixedGroupsTest : public ::testing::TestWithParam<GroupOfCalls> {
 protected:
  // Makes the group with the first ranks on devices.
  static void Run(int on_device, std::vector<Bytes>* outputs, std::vector<Outcome>* errors) {
    const GroupOfCalls& calls = GetParam();
    outputs->assign(kRanks, {});
    errors->assign(kRanks, {});
    CommGroup group(kRanks, LongMessages());
    std::barrier everybody(kRanks);
    group.Run([&](int rank) {
      const bool is_on_device = rank < on_device;
      const onebitComm_t comm = group.comm(rank);
      UseCudaDevice(rank);
      onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
      config.memory = is_on_device ? onebitMemoryDevice : onebitMemoryHost;
      const UniqueCompressor compressor = NewCompressor(comm, kCompressed, onebitFloat32, config);
      const CudaStream stream;
      Bytes host(2 * kPartBytes);
      FillInputs(static_cast<unsigned>(rank), &host);
      const CudaBuffer device(host);
      const Rank here = {
          .rank = rank,
          .comm = comm,
          .stream = is_on_device ? stream.handle() : nullptr,
          .compressor = compressor.get(),
          .memory = is_on_device ? static_cast<std::byte*>(device.data()) : host.data()};
      Outcome& error = (*errors)[static_cast<size_t>(rank)];
      error = CallHere([&] {
        EXPECT_EQ(onebitGroupStart(), onebitSuccess);
        for (size_t call = 0; call < calls.calls; ++call) {
          EXPECT_EQ(calls.make(here, call), onebitSuccess) << onebitGetLastError(nullptr);
        }
        everybody.arrive_and_wait();  // a rank that fails early would refuse calls of the others
        return onebitGroupEnd();
      });
      if (is_on_device && !calls.is_cut_alike && error.result == onebitSuccess) {
        error = AwaitError(comm);
      }
      stream.Synchronize();
      if (is_on_device) host = device.Read();
      (*outputs)[static_cast<size_t>(rank)] = host;
    });
  }
};

TEST_P(MixedGroupsTest, GiveTheResultsOfTheHostOrAMismatch) {
  std::vector<Bytes> expected, outputs;
  std::vector<Outcome> errors;
  const bool is_cut_alike = GetParam().is_cut_alike;
  if (is_cut_alike) Run(0, &expected, &errors);
  for (const int on_device : {1, 2}) {
    SCOPED_TRACE(on_device);
    Run(on_device, &outputs, &errors);
    for (const Outcome& error : errors) {
      EXPECT_FALSE(HasRunIntoDeadline(error)) << error.text;
      if (is_cut_alike) {
        EXPECT_EQ(error.result, onebitSuccess) << error.text;
      } else {
        EXPECT_THAT(error.result, AnyOf(onebitMismatch, onebitRemoteError)) << error.text;
      }
    }
    if (is_cut_alike) {
      EXPECT_TRUE(outputs == expected);
    } else {
      EXPECT_TRUE(std::ranges::count(errors, onebitMismatch, &Outcome::result) != 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, MixedGroupsTest, ::testing::ValuesIn(kGroups),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace onebit::testing
