// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One of two ranks, each a process. Rank 1 makes its calls late, or never. Meanwhile rank 0 does
// something for which the driver may wait for all streams, its own calls included, and lets no
// other thread in. The calls must end all the same: no stream may wait for a thread that needs the
// driver.
//
//   late_peer least|greatest late|dead [free|free_host|load|allocate|nothing]...
//
// The first word is the priority of the streams; without a third, rank 0 does all of them in turn.
// Rank 0 prints each before it begins, and how long it was in the driver. CUDA's own driver runs
// it, too (tests/gpu/run).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "onebit/onebit.hpp"
#include "onebit/parts.h"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/support/deadlines.h"

namespace onebit::testing {
namespace {

constexpr size_t kCount = 300'000;
constexpr size_t kManyCount = 6'000'000;  // a dense call of several pieces

const std::vector<std::string> kAll = {"free", "free_host", "load", "allocate", "nothing"};

// A kernel that does nothing. The driver loads it when it is launched first, unless
// CUDA_MODULE_LOADING is EAGER.
constexpr char kModule[] =
    ".version 6.5\n.target sm_75\n.address_size 64\n.visible .entry late()\n{\n  ret;\n}\n";

void Check(onebitResult_t result) {
  if (result != onebitSuccess) throw std::runtime_error(onebitGetLastError(nullptr));
}
void Expect(bool is_true, const std::string& text) {
  if (!is_true) throw std::runtime_error(text);
}

CUstream NewStream(const std::string& priority) {
  CUstream stream = nullptr;
  constexpr int kBeyondAll = 1000;  // clamped
  CheckCuda(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING,
                                       priority == "greatest" ? -kBeyondAll : kBeyondAll),
            "cuStreamCreateWithPriority");
  return stream;
}

std::vector<std::byte> Ones(size_t count) {
  const std::vector<float> values(count, 1);
  std::vector<std::byte> bytes(count * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

class Rank {
 public:
  explicit Rank(const std::string& priority)
      : first_(NewStream(priority)),
        second_(NewStream(priority)),
        third_(NewStream(priority)),
        small_(Ones(kCount)),
        large_(Ones(kManyCount)),
        moved_(kCount * sizeof(float)),
        spare_(4096) {
    CheckCuda(cuMemHostAlloc(&pinned_, 4096, 0), "cuMemHostAlloc");
    onebitComm_t comm = nullptr;
    Check(onebitCommInitEnv(&comm, nullptr));
    comm_ = UniqueComm(comm);
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.memory = onebitMemoryDevice;
    for (UniqueCompressor& compressor : compressors_) {
      Check(MakeCompressor(compressor, comm, kCount, onebitFloat32, &config));
    }
  }

  int rank() const {
    int rank = -1;
    Check(onebitCommUserRank(comm_.get(), &rank));
    return rank;
  }
  onebitResult_t error() const {
    onebitResult_t error = onebitSuccess;
    Check(onebitCommGetAsyncError(comm_.get(), &error));
    return error;
  }

  std::string TextOfError() const {
    Expect(onebitBarrier(comm_.get(), first_) != onebitSuccess, "a call after the error succeeds");
    return onebitGetLastError(nullptr);
  }

  void Prepare(const std::string& during) {
    if (during == "load") CheckCuda(cuModuleLoadData(&module_, kModule), "cuModuleLoadData");
  }

  // Calls of each kind, on two streams.
  void Call() const {
    const onebitComm_t comm = comm_.get();
    Check(onebitAllReduce(small_.data(), small_.data(), kCount, onebitFloat32, onebitAvg,
                          compressors_[0].get(), comm, first_));
    Check(onebitAllReduce(large_.data(), large_.data(), kManyCount, onebitFloat32, onebitAvg,
                          nullptr, comm, second_));
    Check(onebitGroupStart());
    Check(onebitAllReduce(small_.data(), small_.data(), kCount, onebitFloat32, onebitAvg,
                          compressors_[1].get(), comm, first_));
    Check(onebitBroadcast(large_.data(), large_.data(), 1000, onebitFloat32, 0, comm, first_));
    Check(onebitSend(small_.data(), kCount, onebitFloat32, 1 - rank(), nullptr, comm, first_));
    Check(onebitRecv(moved_.data(), kCount, onebitFloat32, 1 - rank(), nullptr, comm, first_));
    Check(onebitGroupEnd());
  }

  void Wait(const std::string& during) {
    if (during == "free") {
      spare_.reset();
    } else if (during == "free_host") {
      CheckCuda(cuMemFreeHost(std::exchange(pinned_, nullptr)), "cuMemFreeHost");
    } else if (during == "load") {
      CUfunction late = nullptr;
      CheckCuda(cuModuleGetFunction(&late, module_, "late"), "cuModuleGetFunction");
      CheckCuda(cuLaunchKernel(late, 1, 1, 1, 1, 1, 1, 0, third_, nullptr, nullptr),
                "cuLaunchKernel");
    } else if (during == "allocate") {
      const CudaBuffer buffer(4096);
    }
  }

  void Synchronize() const {
    CheckCuda(cuStreamSynchronize(first_), "cuStreamSynchronize");
    CheckCuda(cuStreamSynchronize(second_), "cuStreamSynchronize");
    CheckCuda(cuStreamSynchronize(third_), "cuStreamSynchronize");
  }
  void CheckResults() const {
    Expect(error() == onebitSuccess, "the communicator has failed");
    Expect(small_.Read() == Ones(kCount), "a compressed result is wrong");
    Expect(large_.Read() == Ones(kManyCount), "a dense result is wrong");
    Expect(moved_.Read() == Ones(kCount), "what was received is wrong");
  }

 private:
  struct Spare {
    explicit Spare(size_t bytes) : buffer(std::make_unique<CudaBuffer>(bytes)) {}
    void reset() { buffer.reset(); }
    std::unique_ptr<CudaBuffer> buffer;
  };

  const CUstream first_;
  const CUstream second_;
  const CUstream third_;
  const CudaBuffer small_;
  const CudaBuffer large_;
  const CudaBuffer moved_;
  Spare spare_;
  void* pinned_ = nullptr;
  CUmodule module_ = nullptr;
  UniqueComm comm_;
  UniqueCompressor compressors_[2];
};

// Does it behind the calls of rank 0, and prints how long the driver took.
void CallAndWait(Rank& rank, const std::string& during) {
  rank.Call();
  if (rank.rank() != 0) return;
  const auto begin = std::chrono::steady_clock::now();
  rank.Wait(during);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("late_peer: %s took %.3f s\n", during.c_str(), seconds.count());
}

// Rank 1 comes a second late, and nothing else may hold the calls up.
void RunLate(Rank& rank, const std::string& during) {
  const std::chrono::milliseconds limit(PacedMs(10'000));
  const auto begin = std::chrono::steady_clock::now();
  if (rank.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
  CallAndWait(rank, during);
  rank.Synchronize();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  rank.CheckResults();
  if (taken <= limit) return;
  throw std::runtime_error("the calls ended after " + std::to_string(taken.count()) +
                           " s, though rank 1 was late by 1 s");
}

void RunDead(Rank& rank, const std::string& during) {
  if (rank.rank() == 0) {
    CallAndWait(rank, during);
    rank.Synchronize();
  }
  while (rank.error() == onebitSuccess) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (rank.rank() == 1) return;
  const std::string text = rank.TextOfError();
  Expect(rank.error() == onebitTimeout, "not the error of a time-out: " + text);
  Expect(text.find("waiting for rank 1") != std::string::npos, "names no peer: " + text);
}

void Run(const std::string& priority, const std::string& peer, const std::string& during) {
  Expect(std::find(kAll.begin(), kAll.end(), during) != kAll.end(), "unknown: " + during);
  Rank rank(priority);
  if (rank.rank() == 0) std::printf("late_peer: %s ...\n", during.c_str());
  std::fflush(stdout);
  rank.Prepare(during);
  if (peer == "late") {
    RunLate(rank, during);
  } else {
    RunDead(rank, during);
  }
}

}  // namespace
}  // namespace onebit::testing

int main(int count, char** words) {
  using namespace onebit::testing;
  try {
    Expect(count >= 3,
           "usage: late_peer least|greatest late|dead "
           "[free|free_host|load|allocate|nothing]...");
    UseCudaDevice(0);
    const std::vector<std::string> some(words + 3, words + count);
    for (const std::string& during : some.empty() ? kAll : some) Run(words[1], words[2], during);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "late_peer: %s\n", error.what());
    return 1;
  }
  return 0;
}
