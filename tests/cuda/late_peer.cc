// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One of two ranks, each a process. Rank 1 makes its calls late, or never. Meanwhile rank 0 does
// something for which the driver may wait for all streams, its own calls included, and lets no
// other thread in. The calls must end all the same: no stream may wait for a thread that needs the
// driver.
//
//   late_peer free|free_host|load|allocate|nothing least|greatest late|dead
//
// The second word is the priority of the streams.
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
#include "tests/cuda/cuda_test_memory.h"
#include "tests/support/cuda/cuda_stand_in.h"

namespace onebit::testing {
namespace {

constexpr size_t kCount = 300'000;
constexpr size_t kManyCount = 6'000'000;  // a dense call of several pieces

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
        small_(Ones(kCount)),
        large_(Ones(kManyCount)),
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
    Check(onebitGroupEnd());
  }

  void Wait(const std::string& during) {
    if (during == "free") {
      spare_.reset();
    } else if (during == "free_host") {
      CheckCuda(cuMemFreeHost(std::exchange(pinned_, nullptr)), "cuMemFreeHost");
    } else if (during == "load") {
      CheckCuda(onebitTestCudaLoadLate(), "the load of a kernel");
    } else if (during == "allocate") {
      const CudaBuffer buffer(4096);
    }
  }

  void Synchronize() const {
    CheckCuda(cuStreamSynchronize(first_), "cuStreamSynchronize");
    CheckCuda(cuStreamSynchronize(second_), "cuStreamSynchronize");
  }
  void CheckResults() const {
    Expect(error() == onebitSuccess, "the communicator has failed");
    Expect(small_.Read() == Ones(kCount), "a compressed result is wrong");
    Expect(large_.Read() == Ones(kManyCount), "a dense result is wrong");
  }

 private:
  struct Spare {
    explicit Spare(size_t bytes) : buffer(std::make_unique<CudaBuffer>(bytes)) {}
    void reset() { buffer.reset(); }
    std::unique_ptr<CudaBuffer> buffer;
  };

  const CUstream first_;
  const CUstream second_;
  const CudaBuffer small_;
  const CudaBuffer large_;
  Spare spare_;
  void* pinned_ = nullptr;
  UniqueComm comm_;
  UniqueCompressor compressors_[2];
};

void RunLate(Rank& rank, const std::string& during) {
  if (rank.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
  rank.Call();
  if (rank.rank() == 0) rank.Wait(during);
  rank.Synchronize();
  rank.CheckResults();
}

void RunDead(Rank& rank, const std::string& during) {
  if (rank.rank() == 0) {
    rank.Call();
    rank.Wait(during);
    rank.Synchronize();
  }
  while (rank.error() == onebitSuccess) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (rank.rank() == 1) return;
  const std::string text = rank.TextOfError();
  Expect(rank.error() == onebitTimeout, "not the error of a time-out: " + text);
  Expect(text.find("waiting for rank 1") != std::string::npos, "names no peer: " + text);
}

}  // namespace
}  // namespace onebit::testing

int main(int count, char** words) {
  using namespace onebit::testing;
  try {
    Expect(count == 4,
           "usage: late_peer free|free_host|load|allocate|nothing least|greatest "
           "late|dead");
    UseCudaDevice(0);
    Rank rank(words[2]);
    if (std::string(words[3]) == "late") {
      RunLate(rank, words[1]);
    } else {
      RunDead(rank, words[1]);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "late_peer: %s\n", error.what());
    return 1;
  }
  return 0;
}
