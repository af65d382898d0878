// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A rank of a job that averages tensors by NCCL and knows nothing of onebit, started once per rank
// with RANK, WORLD_SIZE and ONEBIT_RENDEZVOUS: preload_ranks FILE_OF_NCCL. Prints a line of JSON
// with a digest of all results and their errors.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda/cuda_test_memory.h"
#include "tests/preload/gradients.h"

namespace onebit::testing {
namespace {

constexpr int kSteps = 40;
// The interposer's default rule: a tensor is known after two steps, and compressed after 20 calls.
constexpr int kExactSteps = 20;
constexpr int kFirstCompressedStep = 22;
constexpr int kFloat32 = 7;
constexpr int kAvg = 4;

struct PreloadJob {
  int rank;
  int ranks;
  std::string rendezvous;
};

int NumberOf(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

// NCCL as a linked program calls it: by the first function of that name in the process, which is a
// preloaded library's, if there is one.
class GlobalNccl {
 public:
  struct Id {
    char bytes[128];
  };
  using Comm = void*;

  explicit GlobalNccl(const char* file) {
    if (dlopen(file, RTLD_NOW | RTLD_GLOBAL) == nullptr) throw std::runtime_error(dlerror());
  }
  Id NewId() const {
    Id id{};
    Check(Find<int(Id*)>("ncclGetUniqueId")(&id), "ncclGetUniqueId");
    return id;
  }
  Comm Join(const PreloadJob& job, const Id& id) const {
    Comm comm = nullptr;
    Check(Find<int(Comm*, int, Id, int)>("ncclCommInitRank")(&comm, job.ranks, id, job.rank),
          "ncclCommInitRank");
    return comm;
  }
  void Average(void* values, size_t count, Comm comm, CUstream stream) const {
    using Function = int(const void*, void*, size_t, int, int, Comm, CUstream);
    Check(Find<Function>("ncclAllReduce")(values, values, count, kFloat32, kAvg, comm, stream),
          "ncclAllReduce");
  }
  void Destroy(Comm comm) const { Check(Find<int(Comm)>("ncclCommDestroy")(comm), "destroy"); }

 private:
  template <class Function>
  static Function* Find(const char* name) {
    auto* const function = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
    if (function == nullptr) throw std::runtime_error(std::string("NCCL lacks ") + name);
    return function;
  }
  static void Check(int result, const char* what) {
    if (result == 0) return;
    const char* const text = Find<const char*(int)>("ncclGetErrorString")(result);
    throw std::runtime_error(std::string(what) + ": " + text);
  }
};

// Gives the id of rank 0 to all, by a file that appears when it is complete.
GlobalNccl::Id ShareId(const PreloadJob& job, const GlobalNccl& nccl) {
  const std::string path = job.rendezvous + ".nccl";
  GlobalNccl::Id id{};
  if (job.rank == 0) {
    id = nccl.NewId();
    std::ofstream(path + ".new", std::ios::binary).write(id.bytes, sizeof id.bytes);
    std::filesystem::rename(path + ".new", path);
    return id;
  }
  for (int tries = 0; tries < 6000; ++tries) {
    if (std::ifstream(path, std::ios::binary).read(id.bytes, sizeof id.bytes)) return id;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  throw std::runtime_error("rank 0 has no id for the others");
}

// A tensor whose gradient is the same in every step.
class AveragedTensor {
 public:
  AveragedTensor(const PreloadJob& job, int number, size_t count)
      : gradient_(GradientOf(job.rank, number, count)),
        average_(AverageGradient(job.ranks, number, count)),
        result_(count),
        sum_(count),
        buffer_(count * sizeof(float)) {}

  void Fill() { buffer_.Write(std::as_bytes(std::span(gradient_))); }
  void Average(const GlobalNccl& nccl, GlobalNccl::Comm comm, const CudaStream& stream) {
    nccl.Average(buffer_.data(), gradient_.size(), comm, stream.get());
  }
  // Reads the result and adds it to `digest`.
  void Fetch(bool is_summed, uint64_t* digest) {
    const std::vector<std::byte> bytes = buffer_.Read();
    std::memcpy(result_.data(), bytes.data(), bytes.size());
    for (const std::byte byte : bytes) {  // FNV-1a
      *digest = (*digest ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
    }
    if (!is_summed) return;
    for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += result_[i];
  }
  double error() const { return RelativeError(result_, average_); }
  // The error of the mean of `steps` results.
  double ErrorOfMean(int steps) const {
    std::vector<float> mean = sum_;
    for (float& value : mean) value /= static_cast<float>(steps);
    return RelativeError(mean, average_);
  }

 private:
  const std::vector<float> gradient_;
  const std::vector<float> average_;
  std::vector<float> result_;
  std::vector<float> sum_;
  CudaBuffer buffer_;
};

struct Figures {
  uint64_t digest = 0xcbf29ce484222325;
  double exact_error = 0;  // of the first steps, and of the short tensor
  double last_error = 0;   // of the long tensors in the last step
  double mean_error = 0;
  double step_ms = HUGE_VAL;
};

Figures Run(const PreloadJob& job, const GlobalNccl& nccl, GlobalNccl::Comm comm) {
  Figures figures;
  AveragedTensor tensors[] = {{job, 1, 1 << 20}, {job, 2, 300'000}, {job, 3, 100}};
  const AveragedTensor* const small = &tensors[2];
  const CudaStream stream;
  for (int step = 0; step < kSteps; ++step) {
    for (AveragedTensor& tensor : tensors) tensor.Fill();
    const auto begin = std::chrono::steady_clock::now();
    for (AveragedTensor& tensor : tensors) tensor.Average(nccl, comm, stream);
    stream.Synchronize();
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - begin;
    const bool is_late = step >= kFirstCompressedStep;
    if (is_late) figures.step_ms = std::min(figures.step_ms, taken.count());
    for (AveragedTensor& tensor : tensors) {
      tensor.Fetch(is_late, &figures.digest);
      if (step < kExactSteps || &tensor == small) {
        figures.exact_error = std::max(figures.exact_error, tensor.error());
      } else if (step == kSteps - 1) {
        figures.last_error = std::max(figures.last_error, tensor.error());
        figures.mean_error =
            std::max(figures.mean_error, tensor.ErrorOfMean(kSteps - kFirstCompressedStep));
      }
    }
  }
  return figures;
}

void RunRank(const char* file) {
  const char* const rendezvous = std::getenv("ONEBIT_RENDEZVOUS");
  const PreloadJob job{.rank = NumberOf("RANK", 0),
                       .ranks = NumberOf("WORLD_SIZE", 1),
                       .rendezvous = rendezvous == nullptr ? "" : rendezvous};
  UseCudaDevice(NumberOf("LOCAL_RANK", 0) % CudaDeviceCount());
  const GlobalNccl nccl(file);
  const GlobalNccl::Comm comm = nccl.Join(job, job.ranks == 1 ? nccl.NewId() : ShareId(job, nccl));
  const Figures figures = Run(job, nccl, comm);
  nccl.Destroy(comm);
  std::printf(
      "preload_ranks: {\"digest\": \"%016llx\", \"exact_error\": %g, \"last_error\": %g, "
      "\"mean_error\": %g, \"step_ms\": %.3f}\n",
      static_cast<unsigned long long>(figures.digest), figures.exact_error, figures.last_error,
      figures.mean_error, figures.step_ms);
}

}  // namespace
}  // namespace onebit::testing

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: preload_ranks FILE_OF_NCCL\n");
    return 2;
  }
  try {
    onebit::testing::RunRank(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "preload_ranks: Error: %s\n", error.what());
    return 1;
  }
  return 0;
}
