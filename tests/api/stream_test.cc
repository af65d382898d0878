// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Streams on host memory: order, overlap, errors, and handles with pending calls.
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "device/host_stream.h"
#include "tests/support/comm_group.h"
#include "tests/support/process_figures.h"

namespace onebit::testing {
namespace {

constexpr size_t kCount = 1000;

std::vector<float> Input(int rank, int call) {
  std::vector<float> values(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    values[i] = static_cast<float>((i * 7 + static_cast<size_t>(rank * 5 + call * 3)) % 23) - 11;
  }
  return values;
}

std::string LastError() { return onebitGetLastError(nullptr); }

// A function on a stream that waits until the test releases it.
class Gate {
 public:
  void Close(onebitStream_t stream) {
    ASSERT_EQ(onebitStreamLaunchHostFunc(stream, Wait, this), onebitSuccess);
  }
  void Open() {
    is_open_ = true;
    is_open_.notify_all();
  }

 private:
  static onebitResult_t Wait(void* gate) {
    static_cast<Gate*>(gate)->is_open_.wait(false);
    return onebitSuccess;
  }
  std::atomic<bool> is_open_{false};
};

onebitResult_t Count(void* counter) {
  ++*static_cast<std::atomic<int>*>(counter);
  return onebitSuccess;
}

onebitResult_t FailWithText(void*) { return onebitGetVersion(nullptr); }

// Two ranks, each with a stream; one thread makes the calls of both.
class StreamTest : public ::testing::Test {
 protected:
  StreamTest() {
    for (UniqueStream& stream : streams_) EXPECT_EQ(MakeStream(stream), onebitSuccess);
  }
  onebitStream_t stream(int rank) const { return streams_[static_cast<size_t>(rank)].get(); }
  onebitResult_t Reduce(int rank, std::vector<float>* values,
                        onebitCompressor_t compressor = nullptr) {
    return onebitAllReduce(values->data(), values->data(), values->size(), onebitFloat32, onebitAvg,
                           compressor, group_.comm(rank), stream(rank));
  }
  void SynchronizeAll() {
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(onebitStreamSynchronize(stream(rank)), onebitSuccess) << LastError();
    }
  }

  CommGroup group_{2};
  std::array<UniqueStream, 2> streams_;
};

TEST_F(StreamTest, CallsComeInOrderWithTheResultsOfBlockingOnes) {
  constexpr int kCalls = 20;
  const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  std::vector<std::vector<float>> expected(2);
  std::vector<UniqueCompressor> compressors(2);
  group_.Run([&](int rank) {
    auto& compressor = compressors[static_cast<size_t>(rank)];
    compressor = NewCompressor(group_.comm(rank), kCount, onebitFloat32, config);
    for (int call = 0; call < kCalls; ++call) {
      std::vector<float> values = Input(rank, call);
      ASSERT_EQ(onebitAllReduce(values.data(), values.data(), kCount, onebitFloat32, onebitAvg,
                                compressor.get(), group_.comm(rank), nullptr),
                onebitSuccess);
      expected[static_cast<size_t>(rank)].insert(expected[static_cast<size_t>(rank)].end(),
                                                 values.begin(), values.end());
    }
    ASSERT_EQ(onebitCompressorReset(compressor.get()), onebitSuccess);
  });
  std::vector<std::vector<std::vector<float>>> values(2);
  for (int rank = 0; rank < 2; ++rank) {
    for (int call = 0; call < kCalls; ++call) {
      values[static_cast<size_t>(rank)].push_back(Input(rank, call));
    }
    for (auto& buffer : values[static_cast<size_t>(rank)]) {
      ASSERT_EQ(Reduce(rank, &buffer, compressors[static_cast<size_t>(rank)].get()), onebitSuccess);
    }
  }
  SynchronizeAll();
  for (size_t rank = 0; rank < 2; ++rank) {
    std::vector<float> all;
    for (const auto& buffer : values[rank]) all.insert(all.end(), buffer.begin(), buffer.end());
    EXPECT_EQ(all, expected[rank]) << rank;
  }
}

TEST_F(StreamTest, CallsGoOnWhileTheCallerDoesSomethingElse) {
  std::vector<float> first = Input(0, 0);
  ASSERT_EQ(Reduce(0, &first), onebitSuccess);  // returns although rank 1 has not called yet
  EXPECT_EQ(onebitStreamQuery(stream(0)), onebitInProgress);
  std::vector<float> second = Input(1, 0);
  ASSERT_EQ(Reduce(1, &second), onebitSuccess);
  SynchronizeAll();
  EXPECT_EQ(onebitStreamQuery(stream(0)), onebitSuccess);
  EXPECT_EQ(first, second);
  EXPECT_EQ(first[3], (Input(0, 0)[3] + Input(1, 0)[3]) / 2);
}

TEST_F(StreamTest, BarrierAndBroadcastAreCallsLikeOthers) {
  std::vector<float> values = Input(0, 0);
  std::vector<float> received(kCount);
  for (int rank = 0; rank < 2; ++rank) {
    float* output = rank == 0 ? values.data() : received.data();
    ASSERT_EQ(
        onebitBroadcast(output, output, kCount, onebitFloat32, 0, group_.comm(rank), stream(rank)),
        onebitSuccess);
    ASSERT_EQ(onebitBarrier(group_.comm(rank), stream(rank)), onebitSuccess);
  }
  SynchronizeAll();
  EXPECT_EQ(received, values);
}

TEST_F(StreamTest, HostFunctionComesBehindTheCallsBeforeIt) {
  std::vector<std::vector<float>> values = {Input(0, 0), Input(1, 0)};
  struct Copy {
    const std::vector<float>* from;
    std::vector<float> to;
  };
  std::vector<Copy> copies = {{&values[0], {}}, {&values[1], {}}};
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(Reduce(rank, &values[static_cast<size_t>(rank)]), onebitSuccess);
    ASSERT_EQ(onebitStreamLaunchHostFunc(
                  stream(rank),
                  [](void* argument) {
                    auto* copy = static_cast<Copy*>(argument);
                    copy->to = *copy->from;
                    return onebitSuccess;
                  },
                  &copies[static_cast<size_t>(rank)]),
              onebitSuccess);
  }
  SynchronizeAll();
  EXPECT_EQ(copies[0].to, copies[1].to);
  EXPECT_EQ(copies[0].to, values[0]);
}

TEST_F(StreamTest, HostFunctionMayMakeCallsThatBlock) {
  struct Call {
    onebitComm_t comm;
    float value;
  };
  std::vector<Call> calls = {{group_.comm(0), 1}, {group_.comm(1), 5}};
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(onebitStreamLaunchHostFunc(
                  stream(rank),
                  [](void* argument) {
                    auto* call = static_cast<Call*>(argument);
                    return onebitAllReduce(&call->value, &call->value, 1, onebitFloat32, onebitSum,
                                           nullptr, call->comm, nullptr);
                  },
                  &calls[static_cast<size_t>(rank)]),
              onebitSuccess);
    ASSERT_EQ(onebitBarrier(group_.comm(rank), stream(rank)), onebitSuccess);
  }
  SynchronizeAll();
  EXPECT_EQ(calls[0].value, 6);
  EXPECT_EQ(calls[1].value, 6);
}

TEST_F(StreamTest, ErrorIsToldOnceAndHostFunctionsBehindItAreSkipped) {
  std::atomic<int> before = 0;
  std::atomic<int> behind = 0;
  ASSERT_EQ(onebitStreamLaunchHostFunc(stream(0), Count, &before), onebitSuccess);
  ASSERT_EQ(onebitStreamLaunchHostFunc(stream(0), FailWithText, nullptr), onebitSuccess);
  ASSERT_EQ(onebitStreamLaunchHostFunc(stream(0), Count, &behind), onebitSuccess);
  // A call that peers wait for still runs.
  std::vector<float> values = Input(0, 0);
  std::vector<float> others = Input(1, 0);
  ASSERT_EQ(Reduce(0, &values), onebitSuccess);
  ASSERT_EQ(Reduce(1, &others), onebitSuccess);
  EXPECT_EQ(onebitStreamSynchronize(stream(1)), onebitSuccess);
  while (onebitStreamQuery(stream(0)) == onebitInProgress) std::this_thread::yield();
  EXPECT_EQ(onebitStreamQuery(stream(0)), onebitInvalidArgument);
  EXPECT_EQ(onebitStreamSynchronize(stream(0)), onebitInvalidArgument);
  EXPECT_NE(LastError().find("version is NULL"), std::string::npos) << LastError();
  EXPECT_EQ(before, 1);
  EXPECT_EQ(behind, 0);
  EXPECT_EQ(values, others);
  EXPECT_EQ(onebitStreamSynchronize(stream(0)), onebitSuccess);
  ASSERT_EQ(onebitStreamLaunchHostFunc(stream(0), Count, &behind), onebitSuccess);
  EXPECT_EQ(onebitStreamSynchronize(stream(0)), onebitSuccess);
  EXPECT_EQ(behind, 1);
}

TEST_F(StreamTest, HandlesWithPendingCallsRefuseWhatHasNoPlaceInTheOrder) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  const UniqueCompressor compressor = NewCompressor(group_.comm(0), kCount, onebitFloat32, config);
  const UniqueCompressor peer = NewCompressor(group_.comm(1), kCount, onebitFloat32, config);
  Gate gate;
  gate.Close(stream(0));
  std::vector<float> values = Input(0, 0);
  ASSERT_EQ(Reduce(0, &values, compressor.get()), onebitSuccess);

  const auto expect_refused = [](onebitResult_t result, const char* text) {
    EXPECT_EQ(result, onebitInvalidUsage);
    EXPECT_NE(LastError().find(text), std::string::npos) << LastError();
  };
  const onebitComm_t comm = group_.comm(0);
  expect_refused(onebitBarrier(comm, nullptr), "pending on a stream");
  expect_refused(onebitBarrier(comm, stream(1)), "pending on another stream");
  expect_refused(onebitCommFinalize(comm), "pending on a stream");
  expect_refused(onebitCommDestroy(comm), "onebitCommAbort to abandon them");
  onebitComm_t part = nullptr;
  expect_refused(onebitCommSplit(comm, 0, 0, &part, nullptr), "pending on a stream");
  onebitCompressor_t other = nullptr;
  expect_refused(onebitCompressorCreate(&other, comm, 1, onebitFloat32, nullptr), "pending");
  expect_refused(onebitCompressorReset(compressor.get()), "calls with this compressor are pending");
  expect_refused(onebitCompressorSetMask(compressor.get(), nullptr), "pending");
  onebitCompressorStats_t stats = {.size = sizeof stats};
  expect_refused(onebitCompressorGetStats(compressor.get(), &stats), "pending");
  expect_refused(onebitCompressorDestroy(compressor.get()), "pending");

  gate.Open();
  std::vector<float> others = Input(1, 0);
  ASSERT_EQ(Reduce(1, &others, peer.get()), onebitSuccess);
  SynchronizeAll();
  EXPECT_EQ(values, others);
  EXPECT_EQ(onebitCompressorReset(compressor.get()), onebitSuccess);
}

TEST_F(StreamTest, OpIsCheckedWhenItIsTheCallsTurn) {
  std::vector<UniqueCompressor> compressors;
  const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  for (int rank = 0; rank < 2; ++rank) {
    compressors.push_back(NewCompressor(group_.comm(rank), kCount, onebitFloat32, config));
  }
  std::vector<std::vector<float>> values = {Input(0, 0), Input(1, 0)};
  for (int rank = 0; rank < 2; ++rank) {
    const auto i = static_cast<size_t>(rank);
    ASSERT_EQ(Reduce(rank, &values[i], compressors[i].get()), onebitSuccess);
    ASSERT_EQ(onebitAllReduce(values[i].data(), values[i].data(), kCount, onebitFloat32, onebitSum,
                              compressors[i].get(), group_.comm(rank), stream(rank)),
              onebitSuccess);
  }
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(onebitStreamSynchronize(stream(rank)), onebitInvalidUsage);
    EXPECT_NE(LastError().find("used with another op"), std::string::npos) << LastError();
  }
}

TEST_F(StreamTest, GroupGoesOnAStreamAsAWhole) {
  const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  std::vector<UniqueCompressor> compressors;
  std::vector<std::vector<float>> dense;
  std::vector<std::vector<float>> compressed;
  for (int rank = 0; rank < 2; ++rank) {
    compressors.push_back(NewCompressor(group_.comm(rank), kCount, onebitFloat32, config));
    dense.push_back(Input(rank, 0));
    compressed.push_back(Input(rank, 1));
  }
  for (int rank = 0; rank < 2; ++rank) {
    const auto i = static_cast<size_t>(rank);
    ASSERT_EQ(onebitGroupStart(), onebitSuccess);
    ASSERT_EQ(Reduce(rank, &dense[i]), onebitSuccess);
    ASSERT_EQ(Reduce(rank, &compressed[i], compressors[i].get()), onebitSuccess);
    ASSERT_EQ(onebitGroupEnd(), onebitSuccess);
    if (rank == 0) {
      EXPECT_EQ(onebitStreamQuery(stream(0)), onebitInProgress);
      EXPECT_EQ(onebitCompressorReset(compressors[0].get()), onebitInvalidUsage);
      EXPECT_EQ(onebitBarrier(group_.comm(0), nullptr), onebitInvalidUsage);
    }
  }
  SynchronizeAll();
  EXPECT_EQ(dense[0], dense[1]);
  EXPECT_EQ(dense[0][3], (Input(0, 0)[3] + Input(1, 0)[3]) / 2);
  EXPECT_EQ(compressed[0], compressed[1]);
  EXPECT_EQ(StatsOf(compressors[0].get()).epoch, 1u);
  EXPECT_EQ(onebitCompressorReset(compressors[0].get()), onebitSuccess);
}

TEST_F(StreamTest, GroupHasOneStream) {
  std::vector<float> values = Input(0, 0);
  ASSERT_EQ(onebitGroupStart(), onebitSuccess);
  ASSERT_EQ(Reduce(0, &values), onebitSuccess);
  EXPECT_EQ(onebitBarrier(group_.comm(0), nullptr), onebitInvalidUsage);
  EXPECT_NE(LastError().find("different streams"), std::string::npos) << LastError();
  EXPECT_EQ(onebitGroupEnd(), onebitInvalidUsage);  // nothing was sent
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(onebitBarrier(group_.comm(rank), stream(rank)), onebitSuccess);
  }
  SynchronizeAll();
}

TEST_F(StreamTest, FullQueueWaitsForRoomButNotForItself) {
  std::atomic<int> done = 0;
  Gate gate;
  gate.Close(stream(0));
  auto opener = std::async(std::launch::async, [&] {
    EXPECT_TRUE(AwaitOtherThreadsAsleep());
    EXPECT_EQ(done, 0);
    gate.Open();
  });
  constexpr int kTasks = static_cast<int>(HostStream::kMostTasks) + 500;
  for (int i = 0; i < kTasks; ++i) {
    ASSERT_EQ(onebitStreamLaunchHostFunc(stream(0), Count, &done), onebitSuccess);
  }
  EXPECT_EQ(onebitStreamSynchronize(stream(0)), onebitSuccess);
  EXPECT_EQ(done, kTasks);

  struct Filler {
    onebitStream_t stream;
    onebitResult_t wait = onebitSuccess;
    std::atomic<int> done = 0;
  } filler{.stream = stream(0)};
  ASSERT_EQ(onebitStreamLaunchHostFunc(
                stream(0),
                [](void* argument) {
                  auto* own = static_cast<Filler*>(argument);
                  own->wait = onebitStreamSynchronize(own->stream);
                  onebitResult_t result = onebitSuccess;
                  for (size_t i = 0; i <= HostStream::kMostTasks && result == onebitSuccess; ++i) {
                    result = onebitStreamLaunchHostFunc(own->stream, Count, &own->done);
                  }
                  return result;
                },
                &filler),
            onebitSuccess);
  EXPECT_EQ(onebitStreamSynchronize(stream(0)), onebitInvalidUsage);
  EXPECT_NE(LastError().find("its own thread"), std::string::npos) << LastError();
  EXPECT_EQ(filler.wait, onebitInvalidUsage);
}

// The running task still occupies its slot of the queue.
TEST(HostStreamTest, ATaskKeepsItsMemoryUntilItHasEnded) {
  const auto stream = HostStream::Create().value();
  std::atomic<bool> is_open = false;
  std::atomic<int> seen = 0;
  struct Task {
    std::atomic<bool>* is_open;
    std::atomic<int>* seen;
    int value;
    Status operator()() const {
      is_open->wait(false);
      seen->fetch_add(value);
      return OkStatus();
    }
  };
  const auto enqueue = [&](int value) {
    return stream->Enqueue(HostStream::AfterFailure::kRun, Task{&is_open, &seen, value});
  };
  ASSERT_TRUE(enqueue(1'000'000).ok());
  for (size_t i = 1; i < HostStream::kMostTasks; ++i) ASSERT_TRUE(enqueue(1).ok());
  auto last = std::async(std::launch::async, [&] { return enqueue(1).ok(); });
  last.wait_for(std::chrono::milliseconds(20));  // time in which a full queue might accept it
  is_open = true;
  is_open.notify_all();
  EXPECT_TRUE(last.get());
  EXPECT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(seen, 1'000'000 + static_cast<int>(HostStream::kMostTasks));
}

TEST(HostStreamTest, ATaskIsDestroyedOnceItHasRunOrWasSkipped) {
  const auto stream = HostStream::Create().value();
  const auto runs = std::make_shared<int>(0);
  for (int i = 0; i < 2; ++i) {
    const auto rule = i == 0 ? HostStream::AfterFailure::kRun : HostStream::AfterFailure::kSkip;
    ASSERT_TRUE(stream
                    ->Enqueue(rule,
                              [runs, owned = std::make_unique<int>(1)] {
                                *runs += *owned;
                                return Error(Code::kInternalError, "failed");
                              })
                    .ok());
  }
  EXPECT_EQ(stream->Synchronize().text(), "failed");
  EXPECT_EQ(*runs, 1);
  EXPECT_EQ(runs.use_count(), 1);
}

TEST_F(StreamTest, AbortEndsThePendingCallsAndThenTheCommunicatorCanGo) {
  std::vector<std::vector<float>> values(5, Input(0, 0));
  for (auto& buffer : values) ASSERT_EQ(Reduce(0, &buffer), onebitSuccess);
  EXPECT_EQ(onebitCommAbort(group_.comm(0)), onebitSuccess);
  EXPECT_EQ(group_.Destroy(0), onebitSuccess);  // waits for calls after the first
  EXPECT_EQ(onebitStreamSynchronize(stream(0)), onebitAborted) << LastError();
}

TEST_F(StreamTest, StrangeHandlesAreRefused) {
  int word = 0;
  const auto strange = reinterpret_cast<onebitStream_t>(&word);
  EXPECT_EQ(onebitStreamSynchronize(strange), onebitInvalidArgument);
  EXPECT_EQ(onebitStreamQuery(nullptr), onebitInvalidArgument);
  EXPECT_EQ(onebitStreamDestroy(strange), onebitInvalidArgument);
  EXPECT_EQ(onebitStreamDestroy(nullptr), onebitSuccess);
  EXPECT_EQ(onebitStreamCreate(nullptr), onebitInvalidArgument);
  EXPECT_EQ(onebitStreamLaunchHostFunc(stream(0), nullptr, nullptr), onebitInvalidArgument);
  EXPECT_EQ(onebitBarrier(group_.comm(0), strange), onebitInvalidArgument);
  onebitStream_t gone = nullptr;
  ASSERT_EQ(onebitStreamCreate(&gone), onebitSuccess);
  ASSERT_EQ(onebitStreamDestroy(gone), onebitSuccess);
  EXPECT_EQ(onebitStreamSynchronize(gone), onebitInvalidArgument);
}

}  // namespace
}  // namespace onebit::testing
