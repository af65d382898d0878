// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A program of NCCL with the interposer in front, on the stand-ins for NCCL and CUDA. Ranks are
// threads, so rules name communicators; the main function sets them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onebit/nccl_ext.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/stream_gate.h"
#include "tests/support/cuda/cuda_stand_in.h"
#include "tests/support/nccl/nccl_stand_in.h"

namespace onebit::testing {
namespace {

constexpr int kRanks = 3;
constexpr int kStart = 2;  // of the rules

// ncclConfig_t of NCCL 2.27.
struct NamedConfig {
  ncclConfig_t head{.size = sizeof(NamedConfig),
                    .magic = 0xcafebeef,
                    .version = 22700,
                    .blocking = 1,
                    .cgaClusterSize = INT_MIN};
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int traffic_class = INT_MIN;
  const char* comm_name = nullptr;
};

struct Rank {
  int rank;
  ncclComm_t comm;
  const CudaStream& stream;
  std::barrier<>& everybody;
};

// Runs `body` on each rank, on a thread and a device of its own. A body that ends the communicator
// sets it to null.
void RunNamed(const char* name, const std::function<void(Rank&)>& body) {
  UseCudaDevice(0);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::barrier everybody(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      UseCudaDevice(rank);
      NamedConfig config;
      config.comm_name = name;
      ncclComm_t comm = nullptr;
      ASSERT_EQ(ncclCommInitRankConfig(&comm, kRanks, id, rank, &config.head), ncclSuccess);
      const CudaStream stream;
      Rank self{.rank = rank, .comm = comm, .stream = stream, .everybody = everybody};
      body(self);
      // A rank that frees memory waits for the devices of all threads.
      stream.Synchronize();
      everybody.arrive_and_wait();
      EXPECT_EQ(ncclCommDestroy(self.comm), ncclSuccess);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<float> Gradient(int rank, int tensor, size_t count) {
  std::mt19937 random(static_cast<unsigned>(100 * tensor + rank));
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<float> Average(int tensor, size_t count) {
  std::vector<float> sum(count);
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::vector<float> values = Gradient(rank, tensor, count);
    for (size_t i = 0; i < count; ++i) sum[i] += values[i] / kRanks;
  }
  return sum;
}

// |a - b| / |b|
double Error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(double{a[i]} - b[i], 2);
    norm += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

class Tensor {
 public:
  Tensor(const Rank& self, int number, size_t count)
      : values_(Gradient(self.rank, number, count)),
        average_(Average(number, count)),
        buffer_(values_.size() * sizeof(float)) {}

  // Averages the same values again, in place.
  ncclResult_t AllReduce(const Rank& self, ncclRedOp_t op = ncclAvg) {
    buffer_.Write(std::as_bytes(std::span(values_)));
    return ncclAllReduce(buffer_.data(), buffer_.data(), values_.size(), ncclFloat32, op, self.comm,
                         self.stream.get());
  }
  ncclResult_t AllReduce(const Rank& self, const ncclCollConfig_t& config) {
    buffer_.Write(std::as_bytes(std::span(values_)));
    return ncclAllReduceConfig(buffer_.data(), buffer_.data(), values_.size(), ncclFloat32, ncclAvg,
                               self.comm, self.stream.get(), &config);
  }
  std::vector<float> Result(const Rank& self) const {
    self.stream.Synchronize();
    const std::vector<std::byte> bytes = buffer_.Read();
    std::vector<float> found(values_.size());
    std::memcpy(found.data(), bytes.data(), bytes.size());
    return found;
  }
  double ErrorOfResult(const Rank& self) const { return Error(Result(self), average_); }
  const std::vector<float>& average() const { return average_; }

 private:
  const std::vector<float> values_;
  const std::vector<float> average_;
  CudaBuffer buffer_;
};

onebitTestNcclCounts RealCounts() {
  onebitTestNcclCounts counts;
  onebitTestNcclGetCounts(&counts);
  return counts;
}
uint64_t RealAllReduces() { return RealCounts().all_reduces; }

// A configuration with options, as a program of NCCL 2.32 writes it.
class Options {
 public:
  Options() = default;
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  Options& Tensor(uint64_t number) {
    Add(onebitNcclTensor).raw = reinterpret_cast<void*>(number);
    return *this;
  }
  Options& Codec(const char* text) {
    Add(onebitNcclCodec).s = text;
    return *this;
  }
  Options& Off() {
    Add(onebitNcclOff).i = 1;
    return *this;
  }
  ncclCollConfig_t& config() { return config_; }

 private:
  decltype(ncclConfigExt_t::val)& Add(onebitNcclOption_t option) {
    ncclConfigExt_t& added = options_[used_++];
    added = {.next = config_.ext, .key = {ONEBIT_NCCL_VENDOR, option}, .val = {.raw = nullptr}};
    config_.ext = &added;
    return added.val;
  }

  ncclConfigExt_t options_[3];
  size_t used_ = 0;
  ncclCollConfig_t config_{.size = sizeof(ncclCollConfig_t),
                           .magic = 0xcafebeef,
                           .version = 23203,
                           .ext = nullptr,
                           .minCTAs = INT_MIN,
                           .maxCTAs = INT_MIN,
                           .nvlsCTAs = INT_MIN,
                           .cgaClusterSize = INT_MIN,
                           .algSelection = nullptr,
                           .forceAlgSelection = 1,
                           .CTAPolicy = INT_MIN,
                           .userProfilerTag = 0,
                           .launchCompletionEvent = nullptr};
};

TEST(PreloadedCallsTest, TensorsAreCompressedAfterTheirStart) {
  constexpr size_t kLong = 20'000;
  constexpr size_t kOther = 30'000;
  constexpr size_t kShort = 100;
  std::vector<std::vector<float>> sums(kRanks, std::vector<float>(kLong));
  RunNamed("dp", [&](Rank& self) {
    Tensor first(self, 1, kLong);
    Tensor second(self, 2, kOther);
    Tensor loss(self, 3, kShort);
    const uint64_t before = RealAllReduces();
    self.everybody.arrive_and_wait();
    constexpr int kSteps = 40;
    int compressed_steps = 0;
    for (int step = 0; step < kSteps; ++step) {
      for (Tensor* tensor : {&first, &second, &loss}) {
        ASSERT_EQ(tensor->AllReduce(self), ncclSuccess);
      }
      EXPECT_LT(loss.ErrorOfResult(self), 1e-6);
      const bool is_compressed = step >= 2 + kStart;
      // Both are exact at first. Codes of 4 bits miss by a tenth.
      EXPECT_EQ(first.ErrorOfResult(self) > 1e-3, is_compressed) << step;
      EXPECT_LT(first.ErrorOfResult(self), 0.3) << step;
      EXPECT_LT(second.ErrorOfResult(self), 0.3) << step;
      if (!is_compressed) continue;
      ++compressed_steps;
      const std::vector<float> result = first.Result(self);
      std::vector<float>& sum = sums[static_cast<size_t>(self.rank)];
      for (size_t i = 0; i < kLong; ++i) sum[i] += result[i];
    }
    self.everybody.arrive_and_wait();
    // NCCL's own were the short ones and the first calls of both: the cycle was found at the second
    // call of the second tensor.
    EXPECT_EQ(RealAllReduces() - before,
              static_cast<uint64_t>(kRanks) * (kSteps + (2 + kStart) + (1 + kStart)));
    self.everybody.arrive_and_wait();
    // Later calls make up for the errors of earlier ones.
    std::vector<float>& sum = sums[static_cast<size_t>(self.rank)];
    for (float& value : sum) value /= static_cast<float>(compressed_steps);
    EXPECT_LT(Error(sum, first.average()), 0.02);
  });
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
}

// PyTorch holds a lock during every call of NCCL, also that of an abort. The stream has the
// priority of the library's own, so with one hardware queue they stand still, too.
TEST(PreloadedCallsTest, NoCallWaitsForTheDevice) {
  constexpr size_t kCount = 30'000;
  RunNamed("dp", [&](Rank& self) {
    const std::vector<float> ones(kCount, 1);
    const CudaBuffer first(std::as_bytes(std::span(ones)));
    const CudaBuffer second(std::as_bytes(std::span(ones)));
    const CudaStream stream(INT_MIN);
    StreamGate gate(stream);
    for (int step = 0; step < 4 + kStart; ++step) {
      EXPECT_EQ(ncclAllReduce(first.data(), first.data(), kCount, ncclFloat32, ncclAvg, self.comm,
                              stream.get()),
                ncclSuccess);
      // Shorter, so that the calls have a cycle.
      EXPECT_EQ(ncclAllReduce(second.data(), second.data(), kCount / 2, ncclFloat32, ncclAvg,
                              self.comm, stream.get()),
                ncclSuccess);
    }
    gate.Open();
    stream.Synchronize();
    std::vector<float> found(kCount);
    const std::vector<std::byte> bytes = first.Read();
    std::memcpy(found.data(), bytes.data(), bytes.size());
    EXPECT_LT(Error(found, ones), 0.1);
  });
}

TEST(PreloadedCallsTest, GroupsOfReductionsAreCompressedTogether) {
  RunNamed("dp", [&](Rank& self) {
    std::vector<Tensor> tensors;
    tensors.reserve(5);
    for (int number = 0; number < 5; ++number) {
      tensors.emplace_back(self, number, static_cast<size_t>(10'000 + 1000 * number));
    }
    for (int step = 0; step < 6; ++step) {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      for (Tensor& tensor : tensors) ASSERT_EQ(tensor.AllReduce(self), ncclSuccess);
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
      for (const Tensor& tensor : tensors) {
        EXPECT_LT(tensor.ErrorOfResult(self), 0.3);
        if (step < 2 + kStart) continue;
        EXPECT_GT(tensor.ErrorOfResult(self), 1e-3);
      }
    }
  });
}

TEST(PreloadedCallsTest, AGroupWithOtherCallsIsNccls) {
  RunNamed("dp", [&](Rank& self) {
    Tensor tensor(self, 1, 10'000);
    CudaBuffer from(16);
    CudaBuffer to(16);
    const int next = (self.rank + 1) % kRanks;
    const int previous = (self.rank + kRanks - 1) % kRanks;
    for (int step = 0; step < 12; ++step) {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      ASSERT_EQ(tensor.AllReduce(self), ncclSuccess);
      ASSERT_EQ(ncclSend(from.data(), 16, ncclInt8, next, self.comm, self.stream.get()),
                ncclSuccess);
      ASSERT_EQ(ncclRecv(to.data(), 16, ncclInt8, previous, self.comm, self.stream.get()),
                ncclSuccess);
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
      EXPECT_LT(tensor.ErrorOfResult(self), 1e-6) << step;
    }
  });
}

TEST(PreloadedCallsTest, WithoutARuleCallsAreNccls) {
  RunNamed("tp", [&](Rank& self) {
    Tensor tensor(self, 1, 100'000);
    for (int step = 0; step < 8; ++step) {
      ASSERT_EQ(tensor.AllReduce(self), ncclSuccess);
      EXPECT_LT(tensor.ErrorOfResult(self), 1e-6) << step;
    }
  });
}

TEST(PreloadedCallsTest, AMaximumIsNccls) {
  RunNamed("dp", [&](Rank& self) {
    Tensor tensor(self, 1, 10'000);
    std::vector<float> maximum = Gradient(0, 1, 10'000);
    for (int rank = 1; rank < kRanks; ++rank) {
      const std::vector<float> other = Gradient(rank, 1, 10'000);
      for (size_t i = 0; i < maximum.size(); ++i) maximum[i] = std::max(maximum[i], other[i]);
    }
    for (int step = 0; step < 8; ++step) {
      EXPECT_EQ(tensor.AllReduce(self, ncclMax), ncclSuccess);
      EXPECT_EQ(tensor.Result(self), maximum) << step;
    }
  });
}

TEST(PreloadedCallsTest, ReduceScattersAreCompressed) {
  constexpr size_t kPart = 8192;
  RunNamed("dp", [&](Rank& self) {
    const std::vector<float> mine = Gradient(self.rank, 1, kRanks * kPart);
    const std::vector<float> average = Average(1, kRanks * kPart);
    const auto part = average.begin() + static_cast<ptrdiff_t>(kPart) * self.rank;
    const CudaBuffer send(std::as_bytes(std::span(mine)));
    const CudaBuffer recv(kPart * sizeof(float));
    for (int step = 0; step < 9; ++step) {
      EXPECT_EQ(ncclReduceScatter(send.data(), recv.data(), kPart, ncclFloat32, ncclAvg, self.comm,
                                  self.stream.get()),
                ncclSuccess);
      self.stream.Synchronize();
      const std::vector<std::byte> bytes = recv.Read();
      std::vector<float> found(kPart);
      std::memcpy(found.data(), bytes.data(), bytes.size());
      const double error = Error(found, {part, part + kPart});
      // One tensor is believed to be a cycle after four calls.
      EXPECT_EQ(error > 1e-3, step >= 3 + kStart) << step;
      EXPECT_LT(error, 0.3);
    }
  });
}

TEST(PreloadedCallsTest, OnlyTheOutermostGroupMakesItsCalls) {
  RunNamed("dp", [&](Rank& self) {
    Tensor first(self, 1, 10'000);
    Tensor second(self, 2, 20'000);
    for (int step = 0; step < 7; ++step) {
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      EXPECT_EQ(first.AllReduce(self), ncclSuccess);
      EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
      EXPECT_EQ(onebitTestNcclGroupDepth(), 1);
      EXPECT_EQ(second.AllReduce(self), ncclSuccess);
      EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
      EXPECT_EQ(onebitTestNcclGroupDepth(), 0);
      EXPECT_EQ(first.ErrorOfResult(self) > 1e-3, step >= 2 + kStart) << step;
      EXPECT_EQ(second.ErrorOfResult(self) > 1e-3, step >= 1 + kStart) << step;
    }
  });
}

// Averages of many compressed calls are near the exact ones only if each tensor has its own
// residuals. Without numbers no order could be learnt here.
TEST(PreloadedCallsTest, NumberedTensorsKeepTheirResidualsInAnyOrder) {
  constexpr size_t kCount = 20'000;
  RunNamed("dp", [&](Rank& self) {
    Tensor tensors[] = {{self, 1, kCount}, {self, 2, kCount}};
    std::vector<float> sums[] = {std::vector<float>(kCount), std::vector<float>(kCount)};
    std::mt19937 random(7);  // the same on all ranks
    constexpr int kSteps = 40;
    for (int step = 0; step < kSteps; ++step) {
      const size_t first = random() % 2;
      for (const size_t number : {first, 1 - first}) {
        Options options;
        ASSERT_EQ(tensors[number].AllReduce(self, options.Tensor(number).config()), ncclSuccess);
        EXPECT_EQ(tensors[number].ErrorOfResult(self) > 1e-3, step >= kStart) << step;
        if (step < kStart) continue;
        const std::vector<float> result = tensors[number].Result(self);
        for (size_t i = 0; i < kCount; ++i) sums[number][i] += result[i] / (kSteps - kStart);
      }
    }
    for (const size_t number : {0, 1}) {
      EXPECT_LT(Error(sums[number], tensors[number].average()), 0.02) << number;
    }
  });
}

TEST(PreloadedCallsTest, AProgramChoosesTheCodecOfACall) {
  RunNamed("dp", [&](Rank& self) {
    Tensor tensor(self, 1, 900);  // too short for the rule
    for (int step = 0; step < 6; ++step) {
      Options int8;
      Options fp4;
      int8.Tensor(1).Codec("int8,plain,start=0");
      fp4.Tensor(1).Codec("fp4,plain,start=0");
      ASSERT_EQ(tensor.AllReduce(self, step < 3 ? int8.config() : fp4.config()), ncclSuccess);
      const double error = tensor.ErrorOfResult(self);
      EXPECT_GT(error, step < 3 ? 1e-4 : 0.05) << step;
      EXPECT_LT(error, step < 3 ? 0.05 : 0.3) << step;
    }
  });
}

TEST(PreloadedCallsTest, AProgramKeepsACallExact) {
  RunNamed("dp", [&](Rank& self) {
    Tensor tensor(self, 1, 10'000);
    for (int step = 0; step < 9; ++step) {
      Options options;
      options.Tensor(1);
      const bool is_off = step % 3 == 1;
      if (is_off) options.Off();
      ASSERT_EQ(tensor.AllReduce(self, options.config()), ncclSuccess);
      // A call that is off is none of the first two, which start=2 keeps exact.
      EXPECT_EQ(tensor.ErrorOfResult(self) > 1e-3, !is_off && step > kStart) << step;
    }
  });
}

// The calls reach NCCL with the configuration.
TEST(PreloadedCallsTest, ConfigurationsThatAskForMoreAreNccls) {
  RunNamed("dp", [&](Rank& self) {
    Tensor tensor(self, 1, 10'000);
    const uint64_t before = RealCounts().configured;
    self.everybody.arrive_and_wait();
    for (int step = 0; step < 8; ++step) {
      Options options;
      options.Tensor(1).Codec("fp4,start=0").config().maxCTAs = 4;
      ASSERT_EQ(tensor.AllReduce(self, options.config()), ncclSuccess);
      EXPECT_LT(tensor.ErrorOfResult(self), 1e-6) << step;
    }
    self.everybody.arrive_and_wait();
    EXPECT_EQ(RealCounts().configured - before, 8u * kRanks);
    self.everybody.arrive_and_wait();
  });
}

TEST(PreloadedCallsTest, ConfiguredReduceScattersAreCompressed) {
  constexpr size_t kPart = 8192;
  RunNamed("dp", [&](Rank& self) {
    const std::vector<float> mine = Gradient(self.rank, 1, kRanks * kPart);
    const std::vector<float> average = Average(1, kRanks * kPart);
    const auto part = average.begin() + static_cast<ptrdiff_t>(kPart) * self.rank;
    const CudaBuffer send(std::as_bytes(std::span(mine)));
    const CudaBuffer recv(kPart * sizeof(float));
    Options options;
    options.Tensor(1);
    for (int step = 0; step < 4; ++step) {
      ASSERT_EQ(ncclReduceScatterConfig(send.data(), recv.data(), kPart, ncclFloat32, ncclAvg,
                                        self.comm, self.stream.get(), &options.config()),
                ncclSuccess);
      self.stream.Synchronize();
      const std::vector<std::byte> bytes = recv.Read();
      std::vector<float> found(kPart);
      std::memcpy(found.data(), bytes.data(), bytes.size());
      EXPECT_EQ(Error(found, {part, part + kPart}) > 1e-3, step >= kStart) << step;
    }
  });
}

// Configurations are gone when the group ends.
TEST(PreloadedCallsTest, ConfiguredCallsMayBeInAGroup) {
  RunNamed("dp", [&](Rank& self) {
    Tensor first(self, 1, 10'000);
    Tensor second(self, 2, 10'000);
    for (int step = 0; step < 5; ++step) {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      for (Tensor* const tensor : {&first, &second}) {
        Options options;
        options.Tensor(tensor == &first ? 1 : 2);
        EXPECT_EQ(tensor->AllReduce(self, options.config()), ncclSuccess);
        options.config().size = 0;
      }
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
      EXPECT_EQ(first.ErrorOfResult(self) > 1e-3, step >= kStart) << step;
      EXPECT_EQ(second.ErrorOfResult(self) > 1e-3, step >= kStart) << step;
    }
  });
}

// The first call of the group is made when its tensor has ended already.
TEST(PreloadedCallsTest, ANumberMayPassToAnotherTensorWithinAGroup) {
  RunNamed("dp", [&](Rank& self) {
    Tensor first(self, 1, 10'000);
    Tensor second(self, 2, 20'000);
    for (int step = 0; step < 3; ++step) {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      for (Tensor* const tensor : {&first, &second}) {
        Options options;
        options.Tensor(1).Codec("fp4,start=0");
        EXPECT_EQ(tensor->AllReduce(self, options.config()), ncclSuccess);
      }
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
      for (const Tensor* const tensor : {&first, &second}) {
        EXPECT_GT(tensor->ErrorOfResult(self), 1e-3);
        EXPECT_LT(tensor->ErrorOfResult(self), 0.3);
      }
    }
  });
}

TEST(PreloadedCallsTest, WrongOptionsAreInvalidArguments) {
  RunNamed("dp", [&](Rank& self) {
    Tensor tensor(self, 1, 10'000);
    Options options;
    options.Codec("fp5");
    EXPECT_EQ(tensor.AllReduce(self, options.config()), ncclInvalidArgument);
    options.config().ext->val.s = "fp4";
    EXPECT_EQ(tensor.AllReduce(self, options.config()), ncclSuccess);
    EXPECT_LT(tensor.ErrorOfResult(self), 1e-6);
    options.config().magic = 0;
    EXPECT_EQ(tensor.AllReduce(self, options.config()), ncclInvalidArgument);  // NCCL's own answer
  });
}

// NCCL's error once there is one.
ncclResult_t AwaitAsyncError(ncclComm_t comm) {
  ncclResult_t error = ncclSuccess;
  while (error == ncclSuccess) {
    EXPECT_EQ(ncclCommGetAsyncError(comm, &error), ncclSuccess);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return error;
}

// Returns false if the call needs at most `allocations`, so that none fails.
bool FailsAfterAllocations(unsigned allocations) {
  std::atomic<bool> is_refused = false;
  RunNamed("dp", [&](Rank& self) {
    Tensor tensor(self, 1, 10'000);
    for (int step = 0; step < 3 + kStart; ++step) EXPECT_EQ(tensor.AllReduce(self), ncclSuccess);
    self.stream.Synchronize();
    self.everybody.arrive_and_wait();
    // The others wait for the messages of rank 0 when it fails.
    if (self.rank != 0) {
      EXPECT_EQ(tensor.AllReduce(self), ncclSuccess);
    }
    self.everybody.arrive_and_wait();
    if (self.rank == 0) {
      onebitTestCudaFail("cuMemAlloc_v2", allocations, 1, CUDA_ERROR_OUT_OF_MEMORY);
      is_refused = tensor.AllReduce(self) != ncclSuccess;
      onebitTestCudaFail("cuMemAlloc_v2", 0, 0, CUDA_SUCCESS);
      // Instead of a call of NCCL's.
      if (is_refused) {
        EXPECT_EQ(tensor.AllReduce(self), ncclRemoteError);
      }
    }
    self.everybody.arrive_and_wait();
    if (is_refused) {
      EXPECT_NE(AwaitAsyncError(self.comm), ncclSuccess);
    }
    self.everybody.arrive_and_wait();
    EXPECT_EQ(ncclCommAbort(std::exchange(self.comm, nullptr)), ncclSuccess);
  });
  return is_refused;
}

TEST(PreloadedCallsTest, ARankWithoutMemoryLeavesNobodyWaiting) {
  unsigned allocations = 0;
  while (FailsAfterAllocations(allocations)) ++allocations;
  EXPECT_GE(allocations, 4u);
}

// Ranks differ in buffers and times, and agree all the same.
TEST(PreloadedCallsTest, RandomProgramsHaveEqualResults) {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    std::vector<std::vector<std::vector<float>>> results(kRanks);
    RunNamed("dp", [&](Rank& self) {
      std::mt19937 program(seed);  // the same on all ranks
      std::mt19937 own(100 * seed + static_cast<unsigned>(self.rank));
      std::vector<std::vector<Tensor>> buffers;
      const int count = 1 + static_cast<int>(program() % 5);
      for (int number = 0; number < count; ++number) {
        const size_t elements = 500 + program() % 20'000;
        std::vector<Tensor>& of_tensor = buffers.emplace_back();
        of_tensor.reserve(3);
        for (int i = 0; i < 3; ++i) of_tensor.emplace_back(self, number, elements);
      }
      const bool is_grouped = program() % 2 == 0;
      for (int step = 0; step < 20; ++step) {
        const bool breaks = program() % 8 == 0;  // a step that leaves tensors out
        std::vector<const Tensor*> used;
        if (is_grouped) {
          EXPECT_EQ(ncclGroupStart(), ncclSuccess);
        }
        for (std::vector<Tensor>& of_tensor : buffers) {
          if (breaks && program() % 2 == 0) continue;
          Tensor& tensor = of_tensor[own() % of_tensor.size()];
          EXPECT_EQ(tensor.AllReduce(self), ncclSuccess);
          used.push_back(&tensor);
          if (own() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 500));
        }
        if (is_grouped) {
          EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
        }
        for (const Tensor* tensor : used) {
          EXPECT_LT(tensor->ErrorOfResult(self), 0.4);
          results[static_cast<size_t>(self.rank)].push_back(tensor->Result(self));
        }
      }
    });
    EXPECT_EQ(results[0], results[1]) << seed;
    EXPECT_EQ(results[0], results[2]) << seed;
  }
}

// Rank 2 leaves the others alone in a compressed call, which their watchdogs end.
TEST(PreloadedCallsTest, AbortAndRevokeEndACompressedCall) {
  for (const bool is_revoked_first : {false, true}) {
    RunNamed("dp", [&](Rank& self) {
      Tensor tensor(self, 1, 10'000);
      for (int step = 0; step < 8; ++step) EXPECT_EQ(tensor.AllReduce(self), ncclSuccess);
      EXPECT_GT(tensor.ErrorOfResult(self), 1e-3);
      self.everybody.arrive_and_wait();
      if (self.rank != 2) {
        EXPECT_EQ(tensor.AllReduce(self), ncclSuccess);
      }
      self.everybody.arrive_and_wait();
      if (is_revoked_first) {
        EXPECT_EQ(ncclCommRevoke(self.comm, 0), ncclSuccess);
        ncclResult_t error = ncclSuccess;
        EXPECT_EQ(ncclCommGetAsyncError(self.comm, &error), ncclSuccess);
        EXPECT_EQ(error, ncclSuccess);  // as NCCL says
      }
      EXPECT_EQ(ncclCommAbort(std::exchange(self.comm, nullptr)), ncclSuccess);
    });
  }
  onebitTestNcclCounts counts;
  onebitTestNcclGetCounts(&counts);
  EXPECT_EQ(counts.live_comms, 0u);
  EXPECT_EQ(counts.after_end, 0u);
}

TEST(PreloadedCallsTest, ACaptureIsNccls) {
  RunNamed("dp", [&](Rank& self) {
    Tensor tensor(self, 1, 10'000);
    for (int step = 0; step < 8; ++step) ASSERT_EQ(tensor.AllReduce(self), ncclSuccess);
    EXPECT_GT(tensor.ErrorOfResult(self), 1e-3);
    CudaBuffer buffer(40'000);
    self.stream.Synchronize();
    self.everybody.arrive_and_wait();
    const uint64_t before = RealAllReduces();
    self.everybody.arrive_and_wait();
    CudaGraph::Begin(self.stream);
    EXPECT_EQ(ncclAllReduce(buffer.data(), buffer.data(), 10'000, ncclFloat32, ncclAvg, self.comm,
                            self.stream.get()),
              ncclSuccess);
    const CudaGraph graph(self.stream);
    self.everybody.arrive_and_wait();
    EXPECT_EQ(RealAllReduces() - before, static_cast<uint64_t>(kRanks));
    self.everybody.arrive_and_wait();
  });
}

}  // namespace
}  // namespace onebit::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  setenv("ONEBIT_NCCL_RULES", "comm=dp,bytes>=4K:fp4,start=2", 1);
  return RUN_ALL_TESTS();
}
