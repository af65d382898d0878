// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls on device memory over a host transport: faults in their messages, and ranks of which some
// work on a device and some on the host.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/state_blob.h"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/support/comm_group.h"
#include "tests/support/deadlines.h"
#include "tests/support/exported_state.h"
#include "tests/support/faulty_transport.h"

namespace onebit::testing {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int kRanks = 3;
constexpr int kStruckRank = 1;
constexpr size_t kCount = 5000;
constexpr int kCalls = 5;  // 2 without a fault, then some of which one is struck

std::vector<float> InputOf(int rank, int call, size_t count) {
  std::mt19937 random(static_cast<unsigned>(977 * call + rank));
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random()) * 0x1p-31f - 1.0f;
  return values;
}

Bytes BytesOf(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

constexpr std::byte kZero{0};

bool IsZero(const Bytes& bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == kZero; });
}

// A residual in the state of a rank; empty if it has none.
Bytes Residual(const Bytes& state, SectionTag tag) {
  const auto reader = StateReader::Open(state);
  if (!reader.ok()) return {};
  const auto section = reader.value().section(tag).value_or(std::span<const std::byte>());
  return {section.begin(), section.end()};
}

struct Shape {
  const char* name;
  onebitCollective_t collective = onebitCollectiveAllReduce;
  bool is_one_exchange = false;
  bool is_transactional = true;
};

// The calls of one rank on a stream.
class Caller {
 public:
  Caller(const Shape& shape, onebitComm_t comm, int rank)
      : shape_(shape),
        parts_(shape.collective == onebitCollectiveAllReduce ? 1 : kRanks),
        output_(kCount * parts_ * sizeof(float)) {
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.memory = onebitMemoryDevice;
    config.collective = shape.collective;
    config.block = 512;
    config.transactional = shape.is_transactional ? 1 : 0;
    compressor_ = NewCompressor(comm, kCount, onebitFloat32, config);
    for (int call = 0; call <= kCalls; ++call)
      inputs_.emplace_back(BytesOf(InputOf(rank, call, kCount)));
  }

  onebitResult_t Enqueue(onebitComm_t comm, int call) {
    const CudaBuffer& input = inputs_[static_cast<size_t>(call)];
    if (parts_ == 1) {
      return onebitAllReduce(input.data(), output_.data(), kCount, onebitFloat32, onebitAvg,
                             compressor_.get(), comm, stream_.handle());
    }
    return onebitAllGather(input.data(), output_.data(), kCount, onebitFloat32, compressor_.get(),
                           comm, stream_.handle());
  }
  void Synchronize() const { stream_.Synchronize(); }
  Bytes Output() const { return output_.Read(); }
  onebitCompressor_t compressor() const { return compressor_.get(); }

  Bytes State() const { return StateOf(compressor()); }

 private:
  const Shape shape_;
  const size_t parts_;
  CudaStream stream_;
  UniqueCompressor compressor_;
  CudaBuffer output_;
  std::vector<CudaBuffer> inputs_;
};

// Ranks as threads, each with a device.
class DeviceGroup {
 public:
  DeviceGroup(const Shape& shape, uint64_t timeout_ms)
      : group_(kRanks,
               {.timeout_ms = timeout_ms,
                .one_exchange_elements = shape.is_one_exchange ? SIZE_MAX : uint64_t{0}},
               &transport_.transport()) {
    Run([&](int rank) {
      callers_[rank] = std::make_unique<Caller>(shape, group_.comm(rank), rank);
    });
  }
  ~DeviceGroup() {
    Run([&](int rank) { callers_[rank].reset(); });
  }

  void Run(const std::function<void(int rank)>& body) {
    group_.Run([&](int rank) {
      UseCudaDevice(rank);
      body(rank);
    });
  }
  FaultyTransport& transport() { return transport_; }
  onebitComm_t comm(int rank) { return group_.comm(rank); }
  Caller& caller(int rank) { return *callers_[rank]; }

 private:
  FaultyTransport transport_;
  CommGroup group_;
  std::unique_ptr<Caller> callers_[kRanks];
};

// The state of each rank after each number of committed calls, and the output of a call after them.
struct Expected {
  Bytes states[kRanks][kCalls + 1];
  Bytes next_output[kRanks][kCalls + 1];
};

Expected WithoutFaults(const Shape& shape) {
  Expected expected;
  for (int calls = 2; calls <= kCalls; ++calls) {
    DeviceGroup group(shape, kPatient.timeout_ms);
    group.Run([&](int rank) {
      Caller& caller = group.caller(rank);
      for (int call = 0; call < calls; ++call) {
        EXPECT_EQ(caller.Enqueue(group.comm(rank), call), onebitSuccess);
      }
      expected.states[rank][calls] = caller.State();
      EXPECT_EQ(caller.Enqueue(group.comm(rank), kCalls), onebitSuccess);
      caller.Synchronize();
      expected.next_output[rank][calls] = caller.Output();
    });
  }
  return expected;
}

class ProxyFaultTest : public ::testing::TestWithParam<Shape> {
 protected:
  // Returns false if the fault met no message.
  bool Strike(const Fault& fault) {
    const Shape& shape = GetParam();
    const uint64_t timeout_ms =
        fault.kind == Fault::Kind::kDrop ? PacedMs(300) : kPatient.timeout_ms;
    DeviceGroup group(shape, timeout_ms);
    std::barrier everybody(kRanks);
    std::atomic<int> failed{0};
    uint64_t epochs[kRanks] = {};
    group.Run([&](int rank) {
      Caller& caller = group.caller(rank);
      for (const int call : {0, 1}) {
        EXPECT_EQ(caller.Enqueue(group.comm(rank), call), onebitSuccess);
      }
      caller.Synchronize();
      everybody.arrive_and_wait();
      if (rank == 0) group.transport().Arm(fault);
      everybody.arrive_and_wait();
      // Later calls are behind the one that is struck when it fails.
      for (const int call : {2, 3, 4}) static_cast<void>(caller.Enqueue(group.comm(rank), call));
      caller.Synchronize();  // whatever has happened, the stream goes on
      onebitResult_t error = onebitSuccess;
      EXPECT_EQ(onebitCommGetAsyncError(group.comm(rank), &error), onebitSuccess);
      if (error != onebitSuccess) ++failed;
      everybody.arrive_and_wait();
      if (rank == 0) group.transport().Arm({});
      if (failed == 0) return;
      const onebitCompressorStats_t stats = StatsOf(caller.compressor());
      epochs[rank] = stats.epoch;
      EXPECT_EQ(stats.nonfinite_calls, 0u);
      EXPECT_GE(stats.epoch, 2u);
      EXPECT_LE(stats.epoch, uint64_t{kCalls});
      if (stats.epoch < 2 || stats.epoch > kCalls) return;
      const Bytes state = caller.State();
      const bool is_reset = !shape.is_transactional && stats.residual_resets != 0;
      EXPECT_TRUE(is_reset ? IsZero(Residual(state, SectionTag::kWorker)) &&
                                 IsZero(Residual(state, SectionTag::kServer))
                           : state == expected().states[rank][stats.epoch])
          << "rank " << rank << " after " << stats.epoch << " calls";
    });
    if (failed != 0) GoOn(&group, epochs, CutsOff(fault.kind));
    EXPECT_LE(*std::ranges::max_element(epochs) - *std::ranges::min_element(epochs), 1u);
    splits_ += std::set<uint64_t>(epochs, epochs + kRanks).size() > 1 ? 1 : 0;
    return failed != 0;
  }

  // The ranks that remain go on after the newest call that any of them has committed. The struck
  // rank is not among them if it hears nothing. `epochs` are the calls that each has committed.
  void GoOn(DeviceGroup* group, const uint64_t (&epochs)[kRanks], bool is_rank_lost) {
    const auto remains = [&](int rank) { return !is_rank_lost || rank != kStruckRank; };
    std::set<uint64_t> of_remaining;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (remains(rank)) of_remaining.insert(epochs[rank]);
    }
    const uint64_t newest = *of_remaining.rbegin();
    const bool is_gathering = GetParam().collective == onebitCollectiveAllGather;
    // A compressor of an all-gather cannot be rebound. A new one loads the state, if it is the
    // same.
    if (is_gathering && (is_rank_lost || of_remaining.size() > 1)) return;
    Bytes states[kRanks];
    Bytes outputs[kRanks];
    group->Run([&](int rank) {
      if (!remains(rank)) return;
      UniqueComm next;
      const std::vector<int> excluded(is_rank_lost ? 1 : 0, kStruckRank);
      ASSERT_EQ(ShrinkComm(next, group->comm(rank), excluded), onebitSuccess)
          << onebitGetLastError(nullptr);
      Caller* caller = &group->caller(rank);
      std::unique_ptr<Caller> successor;
      if (is_gathering) {
        const Bytes state = caller->State();
        successor = std::make_unique<Caller>(GetParam(), next.get(), rank);
        caller = successor.get();
        EXPECT_EQ(onebitCompressorImport(caller->compressor(), state.data(), state.size()),
                  onebitSuccess)
            << onebitGetLastError(nullptr);
      } else {
        int source = -1;
        EXPECT_EQ(onebitCompressorRebind(caller->compressor(), next.get(), &source), onebitSuccess)
            << onebitGetLastError(nullptr);
      }
      EXPECT_EQ(StatsOf(caller->compressor()).epoch, newest);
      states[rank] = caller->State();
      EXPECT_EQ(caller->Enqueue(next.get(), kCalls), onebitSuccess) << onebitGetLastError(nullptr);
      caller->Synchronize();
      outputs[rank] = caller->Output();
      EXPECT_EQ(onebitBarrier(next.get(), nullptr), onebitSuccess) << onebitGetLastError(nullptr);
    });
    Bytes server;           // of the tensor, in the order of ranks
    Bytes expected_server;  // with zeros of a lost rank
    for (int rank = 0; rank < kRanks; ++rank) {
      const Bytes& committed = expected().states[rank][newest];
      const Bytes served = Residual(committed, SectionTag::kServer);
      const bool is_replica = GetParam().is_one_exchange;
      if (remains(rank) || !is_replica) {
        expected_server.insert(expected_server.end(), served.begin(), served.end());
      }
      if (!remains(rank)) {
        if (!is_replica) std::fill_n(expected_server.end() - served.size(), served.size(), kZero);
        continue;
      }
      const Bytes worker = Residual(states[rank], SectionTag::kWorker);
      const bool is_reset = !GetParam().is_transactional && IsZero(worker);
      EXPECT_TRUE(is_reset || worker == Residual(committed, SectionTag::kWorker))
          << "worker residual of rank " << rank;
      const Bytes part = Residual(states[rank], SectionTag::kServer);
      server.insert(server.end(), part.begin(), part.end());
      EXPECT_TRUE(outputs[rank] == outputs[0]) << "rank " << rank;
      if (is_rank_lost || !GetParam().is_transactional) continue;
      EXPECT_TRUE(outputs[rank] == expected().next_output[rank][newest]) << "rank " << rank;
    }
    // The ranks of a single generation lose what they served, each for itself.
    EXPECT_EQ(server.size(), expected_server.size());
    EXPECT_TRUE(!GetParam().is_transactional || server == expected_server);
  }

  const Expected& expected() {
    if (expected_ == nullptr) expected_ = std::make_unique<Expected>(WithoutFaults(GetParam()));
    return *expected_;
  }

  int splits_ = 0;  // faults after which ranks had committed different numbers of calls

 private:
  std::unique_ptr<Expected> expected_;
};

TEST_P(ProxyFaultTest, ResidualsAreTheOldOrTheNewOnes) {
  static_cast<void>(expected());
  int struck = 0;
  for (const Fault::Kind kind :
       {Fault::Kind::kDrop, Fault::Kind::kFlipHeader, Fault::Kind::kFlipPayload,
        Fault::Kind::kRefuse, Fault::Kind::kPeerError}) {
    for (uint64_t message = 0; message < 6; ++message) {
      SCOPED_TRACE(::testing::Message() << NameOf(kind) << ", message " << message);
      struck += Strike({.kind = kind, .rank = kStruckRank, .message = message, .bit = 100}) ? 1 : 0;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(struck, 20);
  EXPECT_GT(splits_, 0) << "no fault has struck the last exchange";
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ProxyFaultTest,
    ::testing::Values(Shape{.name = "TwoExchanges"},
                      Shape{.name = "OneExchange", .is_one_exchange = true},
                      Shape{.name = "AllGather", .collective = onebitCollectiveAllGather},
                      Shape{.name = "OneGeneration", .is_transactional = false}),
    [](const auto& info) { return std::string(info.param.name); });

// While the stream of one rank waits for the call of the other, its process makes a compressor for
// the host whose calls need more working memory.
TEST(DeviceCallsInProgressTest, ACompressorForTheHostDoesNotDisturbThem) {
  constexpr int kTimes = 12;
  CommGroup group(kRanks);
  std::atomic<int> times_made{0};
  group.Run([&](int rank) {
    UseCudaDevice(rank);
    const onebitComm_t comm = group.comm(rank);
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.memory = onebitMemoryDevice;
    const UniqueCompressor on_device = NewCompressor(comm, kCount, onebitFloat32, config);
    config.memory = onebitMemoryHost;
    config.mode = onebitModePlain;  // has no residuals
    const CudaStream stream;
    const std::vector<float> ones(kCount, 1.0f);
    const CudaBuffer input(std::as_bytes(std::span(ones)));
    const CudaBuffer output(kCount * sizeof(float));
    std::vector<UniqueCompressor> on_host;
    for (int time = 0; time < kTimes; ++time) {
      const auto deadline = std::chrono::steady_clock::now() + kTestTimeout;
      while (rank == 1 && times_made <= time) {
        ASSERT_LT(std::chrono::steady_clock::now(), deadline)
            << "a new compressor waits for calls on a stream";
        std::this_thread::yield();
      }
      EXPECT_EQ(onebitAllReduce(input.data(), output.data(), kCount, onebitFloat32, onebitAvg,
                                on_device.get(), comm, stream.handle()),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      if (rank == 0) {
        // Until its packets are sent, of which no event tells.
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        const size_t count = kCount << time;
        on_host.push_back(NewCompressor(comm, count, onebitFloat32, config));
        times_made = time + 1;
      }
      stream.Synchronize();
      EXPECT_TRUE(output.Read() == BytesOf(ones)) << "time " << time;
    }
    EXPECT_EQ(onebitBarrier(comm, nullptr), onebitSuccess) << onebitGetLastError(nullptr);
  });
}

// The stream still computes the last phase of a call that has its messages when the communicator
// stops. The call behind it fails, and both have the same words.
TEST(DeviceCallsInProgressTest, ACallThatHasItsMessagesCommits) {
  constexpr size_t kManyElements = 1 << 20;
  constexpr int kTimes = 5;
  for (int time = 0; time < kTimes; ++time) {
    CommGroup group(kRanks);
    group.Run([&](int rank) {
      UseCudaDevice(rank);
      const onebitComm_t comm = group.comm(rank);
      onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
      config.memory = onebitMemoryDevice;
      const UniqueCompressor compressor = NewCompressor(comm, kManyElements, onebitFloat32, config);
      const CudaStream stream;
      const CudaBuffer values(BytesOf(InputOf(rank, 0, kManyElements)));
      for (int call = 0; call < 2; ++call) {
        EXPECT_EQ(onebitAllReduce(values.data(), values.data(), kManyElements, onebitFloat32,
                                  onebitAvg, compressor.get(), comm, stream.handle()),
                  onebitSuccess)
            << onebitGetLastError(nullptr);
      }
      const auto deadline = std::chrono::steady_clock::now() + kTestTimeout;
      const auto is_over = [&] {
        const onebitCommStats_t stats = StatsOf(comm);
        return stats.compressed_calls + stats.failed_calls != 0 ||
               std::chrono::steady_clock::now() > deadline;
      };
      while (!is_over()) {
      }
      EXPECT_EQ(onebitCommAbort(comm), onebitSuccess);
      stream.Synchronize();
      EXPECT_EQ(StatsOf(compressor.get()).epoch, StatsOf(comm).compressed_calls)
          << "rank " << rank << ", time " << time;
    });
  }
}

// Messages on the wire do not depend on the memory of the calls.
class MixedMemoryTest : public ::testing::TestWithParam<std::tuple<bool, std::string>> {};

TEST_P(MixedMemoryTest, RanksOnHostsAndDevicesGetTheSameResults) {
  constexpr size_t kSmall = 3000;
  constexpr int kCalls = 40;  // estimates are compared twice
  const std::string& letters = std::get<1>(GetParam());
  const size_t ranks = letters.size();
  const int device_ranks = std::get<0>(GetParam()) ? static_cast<int>(ranks) : 0;
  // Outputs of all calls, by rank.
  const auto run = [&](int on_device) {
    std::vector<std::vector<Bytes>> outputs(ranks);
    CommOptions options = kPatient;
    options.two_level_bytes = 0;
    CommGroup group(OnHosts(letters, options));
    group.Run([&](int rank) {
      const bool is_on_device = rank < on_device;
      UseCudaDevice(rank % CudaDeviceCount());
      onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
      config.memory = is_on_device ? onebitMemoryDevice : onebitMemoryHost;
      config.block = 512;
      const UniqueCompressor reduce =
          NewCompressor(group.comm(rank), kSmall, onebitFloat32, config);
      config.collective = onebitCollectiveAllGather;
      const UniqueCompressor gather =
          NewCompressor(group.comm(rank), kSmall, onebitFloat32, config);
      const CudaStream stream;
      CudaBuffer device(2 * ranks * kSmall * sizeof(float));
      std::vector<float> host(2 * ranks * kSmall);
      for (int call = 0; call < kCalls; ++call) {
        std::vector<float> values = InputOf(rank, call, host.size());
        if (call == 7 && rank == 0) values[1] = std::numeric_limits<float>::quiet_NaN();
        if (is_on_device) device.Write(std::as_bytes(std::span(values)));
        host = values;
        float* const at = is_on_device ? static_cast<float*>(device.data()) : host.data();
        const onebitStream_t on = is_on_device ? stream.handle() : nullptr;
        float* const gathered = at + ranks * kSmall;
        EXPECT_EQ(onebitAllReduce(at, at, kSmall, onebitFloat32, onebitAvg, reduce.get(),
                                  group.comm(rank), on),
                  onebitSuccess)
            << onebitGetLastError(nullptr);
        EXPECT_EQ(onebitAllGather(at, gathered, kSmall, onebitFloat32, gather.get(),
                                  group.comm(rank), on),
                  onebitSuccess)
            << onebitGetLastError(nullptr);
        EXPECT_EQ(onebitGroupStart(), onebitSuccess);
        EXPECT_EQ(onebitAllReduce(at, at, kSmall, onebitFloat32, onebitSum, nullptr,
                                  group.comm(rank), on),
                  onebitSuccess);
        EXPECT_EQ(
            onebitBroadcast(at + kSmall, at + kSmall, 100, onebitFloat32, 2, group.comm(rank), on),
            onebitSuccess);
        EXPECT_EQ(onebitGroupEnd(), onebitSuccess) << onebitGetLastError(nullptr);
        if (is_on_device) {
          stream.Synchronize();
          outputs[static_cast<size_t>(rank)].push_back(device.Read());
        } else {
          outputs[static_cast<size_t>(rank)].push_back(BytesOf(host));
        }
      }
      EXPECT_EQ(onebitBarrier(group.comm(rank), nullptr), onebitSuccess);
    });
    return outputs;
  };
  const auto expected = run(device_ranks);
  EXPECT_TRUE(run(1) == expected);
  EXPECT_TRUE(run(2) == expected);
}

// On one host, on three, and with two levels.
INSTANTIATE_TEST_SUITE_P(Against, MixedMemoryTest,
                         ::testing::Combine(::testing::Bool(),
                                            ::testing::Values(std::string("aaaa"), "abcd", "abab")),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) ? "Devices" : "Hosts") +
                                  std::get<1>(info.param);
                         });

}  // namespace
}  // namespace onebit::testing
