// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/device_checks.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "onebit/onebit.hpp"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/support/exported_state.h"
#include "tests/support/tensor.h"

namespace onebit::testing {
namespace {

using Clock = std::chrono::steady_clock;
// Ranks that share a GPU take turns on it, so everything is slow.
constexpr std::chrono::seconds kLongest{30};

void Check(onebitResult_t result, const char* what) {
  if (result == onebitSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + onebitGetLastError(nullptr));
}

void Require(bool is_true, const std::string& text) {
  if (!is_true) throw std::runtime_error(text);
}

bool Await(const std::function<bool()>& is_so) {
  const auto deadline = Clock::now() + kLongest;
  while (!is_so()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

std::span<const std::byte> BytesOf(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

// Ensures that all ranks are connected before anything goes wrong.
void Greet(const DeviceRank& self, const CudaStream& stream) {
  const std::vector<float> ones(64, 1.0f);
  const CudaBuffer values(BytesOf(ones));
  Check(onebitAllReduce(values.data(), values.data(), ones.size(), onebitFloat32, onebitSum,
                        nullptr, self.comm, stream.handle()),
        "the first allreduce");
  Require(Await([&] { return stream.IsIdle(); }), "the first allreduce does not end");
  float first = 0;
  std::memcpy(&first, values.Read().data(), sizeof first);
  Require(first == static_cast<float>(self.ranks), "the first allreduce is wrong");
}

onebitResult_t ErrorOf(onebitComm_t comm) {
  onebitResult_t error = onebitSuccess;
  Check(onebitCommGetAsyncError(comm, &error), "the error of the communicator");
  return error;
}

void AwaitErrorAndStream(const DeviceRank& self, const CudaStream& stream) {
  Require(Await([&] { return ErrorOf(self.comm) != onebitSuccess; }), "no error was told");
  Require(Await([&] { return stream.IsIdle(); }), "the stream does not go on");
}

// Uniform in [-1, 1), the same wherever it is computed.
std::vector<float> InputOf(int rank, int call, size_t count) {
  std::mt19937 random(static_cast<unsigned>(7919 * call + rank));
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random()) * 0x1p-31f - 1.0f;
  return values;
}

std::vector<float> FloatsOf(const CudaBuffer& buffer, size_t count) {
  std::vector<float> values(count);
  std::memcpy(values.data(), buffer.Read().data(), count * sizeof(float));
  return values;
}

// The sections of a state that hold residuals (src/state/STATE.md). In a state of all ranks:
// the mean of the worker residuals, and the server residuals of the whole tensor.
struct Residuals {
  std::vector<float> worker;
  std::vector<float> server;  // in a state of one rank: the elements that it serves
};

Residuals ResidualsOf(onebitCompressor_t compressor, onebitStateKind_t kind) {
  constexpr uint32_t kWorkerTag = 2, kServerTag = 3;
  constexpr size_t kTable = 40, kRowBytes = 24;
  const std::vector<std::byte> blob = StateOf(compressor, kind);
  const auto number_at = [&](size_t at) {
    uint32_t number = 0;
    std::memcpy(&number, blob.data() + at, sizeof number);
    return number;
  };
  Residuals residuals;
  size_t begin = number_at(24);
  const size_t sections = number_at(28);
  for (size_t row = 0; row < sections; ++row) {
    const uint32_t tag = number_at(kTable + row * kRowBytes);
    const size_t length = number_at(kTable + row * kRowBytes + 8);
    if (tag == kWorkerTag || tag == kServerTag) {
      std::vector<float>& part = tag == kWorkerTag ? residuals.worker : residuals.server;
      part.resize(length / sizeof(float));
      std::memcpy(part.data(), blob.data() + begin, length);
    }
    begin += (length + 7) / 8 * 8;
  }
  return residuals;
}

std::vector<float> SumOverRanks(const DeviceRank& self, const std::vector<float>& values,
                                const CudaStream& stream) {
  const CudaBuffer buffer(BytesOf(values));
  Check(onebitAllReduce(buffer.data(), buffer.data(), values.size(), onebitFloat32, onebitSum,
                        nullptr, self.comm, stream.handle()),
        "a sum over ranks");
  stream.Synchronize();
  return FloatsOf(buffer, values.size());
}

// The amount that results of an average owe: the mean of the worker residuals plus all server
// residuals.
std::vector<float> OwedBy(onebitCompressor_t compressor, size_t count, const DeviceRank& self,
                          const CudaStream& stream) {
  const Residuals residuals = ResidualsOf(compressor, onebitStateRank);
  const auto rank = static_cast<size_t>(self.rank);
  Require(residuals.worker.size() == count, "the state is of another tensor");
  std::vector<float> served(static_cast<size_t>(self.ranks));
  served[rank] = static_cast<float>(residuals.server.size());
  served = SumOverRanks(self, served, stream);
  size_t begin = 0;
  for (size_t before = 0; before < rank; ++before) begin += static_cast<size_t>(served[before]);
  // With one exchange every rank serves all elements, and all have the same residual.
  const bool is_one_exchange = residuals.server.size() == count;
  const float unit = is_one_exchange ? static_cast<float>(self.ranks) : 1;
  if (is_one_exchange) begin = 0;
  Require(begin + residuals.server.size() <= count, "servers have more than the tensor");
  std::vector<float> owed(count);
  for (size_t i = 0; i < count; ++i) {
    owed[i] = residuals.worker[i] / static_cast<float>(self.ranks);
  }
  for (size_t i = 0; i < residuals.server.size(); ++i)
    owed[begin + i] += residuals.server[i] / unit;
  return SumOverRanks(self, owed, stream);
}

}  // namespace

void CheckAgainstHost(const DeviceRank& self, const DeviceCase& one, Where where) {
  const std::vector<DeviceRecord> expected = RunCaseOnHost(one, self.ranks);
  const DeviceRecord found = RunCase(one, self.comm, where);
  const std::string difference = DifferenceOf(found, expected[static_cast<size_t>(self.rank)]);
  Require(difference.empty(), Describe(one) + (where == Where::kGraph ? ", replayed" : "") +
                                  ": differs from the host in " + difference);
}

void CheckMismatchOfTypesIsTold(const DeviceRank& self) {
  const CudaStream stream;
  Greet(self, stream);
  const size_t count = 4096;
  const CudaBuffer values(std::vector<std::byte>(count * 2));
  const bool is_other = self.rank + 1 == self.ranks;
  // The error may already be known when the call is made.
  const onebitResult_t result = onebitAllReduce(values.data(), values.data(), count,
                                                is_other ? onebitBfloat16 : onebitFloat16,
                                                onebitSum, nullptr, self.comm, stream.handle());
  Require(result == onebitSuccess || result == onebitMismatch, "another error of the call");
  AwaitErrorAndStream(self, stream);
  const std::string text = onebitGetLastError(self.comm);
  Require(ErrorOf(self.comm) == onebitMismatch, "not the error of calls that differ: " + text);
  Require(text.find("calls differ") != std::string::npos, "the text does not say it: " + text);
}

void CheckMismatchOfCountsIsTold(const DeviceRank& self) {
  const CudaStream stream;
  Greet(self, stream);
  const size_t count = self.rank + 1 == self.ranks ? 30'000 : 10'000;
  const CudaBuffer values(std::vector<std::byte>(count * sizeof(float)));
  // The error may already be known when the call is made.
  const onebitResult_t result = onebitAllReduce(values.data(), values.data(), count, onebitFloat32,
                                                onebitSum, nullptr, self.comm, stream.handle());
  if (result != onebitSuccess) Require(ErrorOf(self.comm) != onebitSuccess, "an error of one call");
  AwaitErrorAndStream(self, stream);
}

void CheckAbortReleasesTheStream(const DeviceRank& self) {
  const CudaStream stream;
  Greet(self, stream);
  if (self.rank == 0) {
    const std::vector<float> ones(10'000, 1.0f);
    const CudaBuffer values(BytesOf(ones));
    Check(onebitAllReduce(values.data(), values.data(), ones.size(), onebitFloat32, onebitSum,
                          nullptr, self.comm, stream.handle()),
          "the allreduce of one rank");
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // in which it would end
    Require(!stream.IsIdle(), "an allreduce of one rank has ended");
    Check(onebitCommAbort(self.comm), "abort");
    Require(Await([&] { return stream.IsIdle(); }), "the stream does not go on after the abort");
    return;
  }
  AwaitErrorAndStream(self, stream);
}

// The transport may sum in any order, so sums are compared by their error.
void CheckNativeDense(const DeviceRank& self) {
  const CudaStream stream;
  const size_t part = 33'335;
  const auto ranks = static_cast<size_t>(self.ranks);
  const size_t count = part * ranks;
  const auto rank = static_cast<size_t>(self.rank);
  std::vector<double> sums(count);
  std::vector<double> gathered;
  for (int peer = 0; peer < self.ranks; ++peer) {
    const std::vector<float> input = InputOf(peer, 0, count);
    for (size_t i = 0; i < count; ++i) sums[i] += input[i];
    gathered.insert(gathered.end(), input.begin(), input.begin() + static_cast<ptrdiff_t>(part));
  }
  const std::vector<float> root_input = InputOf(self.ranks - 1, 0, count);
  const std::vector<double> of_root(root_input.begin(), root_input.end());
  const std::vector<double> my_sums(sums.begin() + static_cast<ptrdiff_t>(rank * part),
                                    sums.begin() + static_cast<ptrdiff_t>((rank + 1) * part));
  onebitCommStats_t before = {.size = sizeof before};
  Check(onebitCommGetStats(self.comm, &before), "stats");
  uint64_t calls = 0;
  using kernels::DataType;
  for (const DataType element : {DataType::kF32, DataType::kF16, DataType::kBf16}) {
    const double precision = element == DataType::kF32   ? 1e-6
                             : element == DataType::kF16 ? 2e-3
                                                         : 2e-2;
    const onebitDataType_t type = ApiType(element);
    Tensor mine(count, element);
    const std::vector<float> input_values = InputOf(self.rank, 0, count);
    for (size_t i = 0; i < count; ++i) mine.Set(i, input_values[i]);
    const auto compare = [&](const char* call, const std::vector<double>& expected, double unit,
                             const auto& make) {
      const CudaBuffer input({mine.data(), mine.bytes()});
      const CudaBuffer output(mine.bytes());
      Check(make(input.data(), output.data()), call);
      ++calls;
      stream.Synchronize();
      Tensor found(count, element);
      std::memcpy(found.data(), output.Read().data(), found.bytes());
      for (size_t i = 0; i < expected.size(); ++i) {
        Require(std::abs(found.Get(i) - expected[i] / unit) <= precision * self.ranks,
                "element " + std::to_string(i) + " of a native " + call + " is wrong");
      }
    };
    for (const onebitRedOp_t op : {onebitSum, onebitAvg}) {
      const double unit = op == onebitSum ? 1 : self.ranks;
      compare("allreduce", sums, unit, [&](const void* send, void* recv) {
        return onebitAllReduce(send, recv, count, type, op, nullptr, self.comm, stream.handle());
      });
      compare("reduce-scatter", my_sums, unit, [&](const void* send, void* recv) {
        return onebitReduceScatter(send, recv, part, type, op, nullptr, self.comm, stream.handle());
      });
    }
    compare("all-gather", gathered, 1, [&](const void* send, void* recv) {
      return onebitAllGather(send, recv, part, type, nullptr, self.comm, stream.handle());
    });
    compare("broadcast", of_root, 1, [&](const void* send, void* recv) {
      return onebitBroadcast(send, recv, count, type, self.ranks - 1, self.comm, stream.handle());
    });
  }
  // Integers have one result in any order.
  std::vector<int64_t> all;
  for (int peer = 0; peer < self.ranks; ++peer) {
    all.push_back((int64_t{1} << 40) * (peer % 2 == 0 ? -1 : 1) - peer);
  }
  const int64_t sum = std::accumulate(all.begin(), all.end(), int64_t{0});
  const std::pair<onebitRedOp_t, int64_t> results[] = {
      {onebitSum, sum},
      {onebitAvg, sum / self.ranks},
      {onebitMax, *std::max_element(all.begin(), all.end())},
      {onebitMin, *std::min_element(all.begin(), all.end())}};
  for (const auto& [op, expected] : results) {
    const CudaBuffer number(std::as_bytes(std::span(&all[rank], 1)));
    Check(onebitAllReduce(number.data(), number.data(), 1, onebitInt64, op, nullptr, self.comm,
                          stream.handle()),
          "allreduce of integers");
    ++calls;
    stream.Synchronize();
    Require(std::memcmp(number.Read().data(), &expected, sizeof expected) == 0,
            "a native allreduce of integers is wrong, op " + std::to_string(op));
  }
  Require(ErrorOf(self.comm) == onebitSuccess, onebitGetLastError(self.comm));
  onebitCommStats_t after = {.size = sizeof after};
  Check(onebitCommGetStats(self.comm, &after), "stats");
  Require(after.bytes_sent == before.bytes_sent, "the transport did not do it itself");
  Require(after.native_calls == before.native_calls + calls, "native_calls is wrong");
}

void CheckReplaysLoseNothing(const DeviceRank& self, size_t count, int replays) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.memory = onebitMemoryDevice;
  onebitCompressor_t created = nullptr;
  Check(onebitCompressorCreate(&created, self.comm, count, onebitFloat32, &config), "compressor");
  const UniqueCompressor compressor(created);
  const CudaStream stream;
  const CudaBuffer input(count * sizeof(float));
  const CudaBuffer output(count * sizeof(float));
  const auto call = [&] {
    Check(onebitAllReduce(input.data(), output.data(), count, onebitFloat32, onebitAvg,
                          compressor.get(), self.comm, stream.handle()),
          "allreduce");
  };
  std::vector<double> went_in(count), came_out(count);
  std::unique_ptr<CudaGraph> graph;
  for (int step = 0; step <= replays; ++step) {
    for (int rank = 0; rank < self.ranks; ++rank) {
      const std::vector<float> values = InputOf(rank, step, count);
      for (size_t i = 0; i < count; ++i) went_in[i] += double{values[i]} / self.ranks;
      if (rank != self.rank) continue;
      CheckCuda(cuMemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(input.data()), values.data(),
                                  count * sizeof(float), stream.get()),
                "cuMemcpyHtoDAsync");
      stream.Synchronize();
    }
    if (step == 1) {
      CudaGraph::Begin(stream);
      call();
      graph = std::make_unique<CudaGraph>(stream);
    }
    if (graph == nullptr) {
      call();
    } else {
      graph->Launch(stream);
    }
    stream.Synchronize();
    const std::vector<float> values = FloatsOf(output, count);
    for (size_t i = 0; i < count; ++i) came_out[i] += values[i];
  }
  Require(ErrorOf(self.comm) == onebitSuccess, onebitGetLastError(self.comm));
  onebitCompressorStats_t stats = {.size = sizeof stats};
  Check(onebitCompressorGetStats(compressor.get(), &stats), "stats of the compressor");
  Require(stats.epoch == static_cast<uint64_t>(replays) + 1, "not every replay was committed");
  const std::vector<float> owed = OwedBy(compressor.get(), count, self, stream);
  const Residuals of_all = ResidualsOf(compressor.get(), onebitStateGlobal);
  Require(of_all.worker.size() == count && of_all.server.size() == count, "state of all ranks");
  double error = 0, magnitude = 0, state_error = 0;
  for (size_t i = 0; i < count; ++i) {
    const double in_state = double{of_all.worker[i]} + of_all.server[i];
    state_error = std::max(state_error, std::abs(in_state - owed[i]));
    error = std::max(error, std::abs(came_out[i] + owed[i] - went_in[i]));
    magnitude = std::max({magnitude, std::abs(went_in[i]), double{std::abs(owed[i])}});
  }
  Require(error <= 1e-5 * magnitude,
          "replays lose " + std::to_string(error) + " of " + std::to_string(magnitude));
}

}  // namespace onebit::testing
