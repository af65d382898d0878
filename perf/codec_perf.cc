// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Speed of the kernels beyond the caches, and their share of what memory allows.
//
// Every iteration runs the kernel and passes with the same memory traffic but no arithmetic, one
// right after the other, so that other users of the machine disturb them alike. The counters are
// medians over the iterations:
//   gbps           logical bytes per second / 1e9: elements times the size of the uncompressed type
//   ceiling_share  time of the best pass / time of the kernel
//   fused_speedup  (EfCompressMultiPass only) its time / time of EfCompress/fp32/block4096
// With --device cuda they are the kernels of a CUDA device (codec_perf_cuda.cc).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "kernels/kernels.h"
#include "perf/codec_perf_buffers.h"
#include "perf/codec_perf_ceiling.h"
#include "perf/codec_perf_cuda.h"
#include "perf/codec_perf_cuda_session.h"
#include "perf/codec_perf_lossless.h"
#include "perf/codec_perf_low_bit.h"
#include "perf/codec_perf_measure.h"
#include "perf/codec_perf_multipass.h"
#include "perf/codec_perf_sparse.h"
#include "perf/common/device_choice.h"
#include "perf/common/flag_kinds.h"
#include "perf/common/tool_error.h"
#include "perf/common/tool_main.h"

namespace onebit::perf {
namespace {

using kernels::CompressInput;
using kernels::DataType;
using kernels::ReduceInput;

constexpr size_t kBlock = 4096;
constexpr int kMostMegabytes = 4096;  // so that a count of tiles fits 32 bits
// Tells CTest to count a test as skipped if there is no CUDA.
constexpr int kExitSkipped = 77;

constexpr size_t BytesOfElements(DataType type) {
  return Buffers::kElements * kernels::BytesOf(type);
}

CompressInput WorkerInput(DataType type) {
  Buffers& buffers = Buffers::Get();
  return {.input = type == DataType::kF32 ? static_cast<const void*>(buffers.Numbers(0))
                                          : buffers.Halves(),
          .input_type = type,
          .residual_in = buffers.Numbers(1),
          .residual_out = buffers.Output(0),
          .count = Buffers::kElements};
}

void EfCompress(benchmark::State& state, DataType type, size_t block) {
  Buffers& buffers = Buffers::Get();
  const CompressInput in = WorkerInput(type);
  const TrafficBuffers traffic = {.read = {in.input, in.residual_in},
                                  .write = {in.residual_out, buffers.BitOutput()}};
  Measure(state, BytesOfElements(type),
          type == DataType::kF32 ? Shape::kCompressF32 : Shape::kCompressHalf, traffic, [&] {
            benchmark::DoNotOptimize(kernels::cpu::CompressBlocks(in, block, buffers.ScaleOutput(),
                                                                  buffers.BitOutput()));
          });
}

void Sign(benchmark::State& state) {
  Buffers& buffers = Buffers::Get();
  const CompressInput in = {.input = buffers.Numbers(0), .count = Buffers::kElements};
  const TrafficBuffers traffic = {.read = {in.input}, .write = {buffers.BitOutput()}};
  Measure(state, BytesOfElements(DataType::kF32), Shape::kSignF32, traffic, [&] {
    benchmark::DoNotOptimize(
        kernels::cpu::CompressBlocks(in, kBlock, buffers.ScaleOutput(), buffers.BitOutput()));
  });
}

void EfCompressMultiPass(benchmark::State& state) {
  Buffers& buffers = Buffers::Get();
  const CompressInput in = WorkerInput(DataType::kF32);
  const MultiPassBuffers passes = {.input = buffers.Numbers(0),
                                   .residual_in = buffers.Numbers(1),
                                   .residual_out = buffers.Output(0),
                                   .compensated = buffers.Output(1),
                                   .signs = buffers.Output(2),
                                   .decoded = buffers.Output(3),
                                   .bits = buffers.BitOutput(),
                                   .count = Buffers::kElements};
  const auto fused = [&] {
    kernels::cpu::CompressBlocks(in, kBlock, buffers.ScaleOutput(), buffers.BitOutput());
  };
  std::vector<double> fused_seconds, passes_seconds;
  for (auto _ : state) {
    state.PauseTiming();
    fused_seconds.push_back(SecondsOf(fused));
    state.ResumeTiming();
    passes_seconds.push_back(
        SecondsOf([&] { benchmark::DoNotOptimize(CompressInSixPasses(passes)); }));
  }
  state.counters["gbps"] =
      static_cast<double>(BytesOfElements(DataType::kF32)) / MedianOf(passes_seconds) / 1e9;
  state.counters["fused_speedup"] = MedianOf(Quotients(passes_seconds, fused_seconds));
}

constexpr size_t kRanks = 8;

ReduceInput ServerInput() {
  Buffers& buffers = Buffers::Get();
  return {.bits = buffers.Packets(),
          .scales = buffers.PacketScales(),
          .ranks = kRanks,
          .count = Buffers::kElements};
}

TrafficBuffers PacketTraffic() {
  TrafficBuffers traffic;
  std::copy_n(Buffers::Get().Packets(), kRanks, traffic.read);
  return traffic;
}

void DecodeAverage(benchmark::State& state) {
  const ReduceInput in = ServerInput();
  float* output = Buffers::Get().Output(0);
  TrafficBuffers traffic = PacketTraffic();
  traffic.write[0] = output;
  Measure(state, BytesOfElements(DataType::kF32), Shape::kAverage8, traffic,
          [&] { kernels::cpu::DecodeAverage(in, kBlock, output); });
}

void ServerReduce(benchmark::State& state) {
  Buffers& buffers = Buffers::Get();
  ReduceInput in = ServerInput();
  in.residual_in = buffers.Numbers(1);
  in.residual_out = buffers.Output(0);
  TrafficBuffers traffic = PacketTraffic();
  traffic.read[kRanks] = in.residual_in;
  traffic.write[0] = in.residual_out;
  traffic.write[1] = buffers.BitOutput();
  Measure(state, BytesOfElements(DataType::kF32), Shape::kServer8, traffic, [&] {
    benchmark::DoNotOptimize(
        kernels::cpu::ReduceBlocks(in, kBlock, buffers.ScaleOutput(), buffers.BitOutput()));
  });
}

void Decode(benchmark::State& state, DataType type) {
  Buffers& buffers = Buffers::Get();
  void* output = buffers.Output(0);
  const TrafficBuffers traffic = {.read = {buffers.Packets()[0]}, .write = {output}};
  Measure(state, BytesOfElements(type),
          type == DataType::kF32 ? Shape::kDecodeF32 : Shape::kDecodeHalf, traffic, [&] {
            kernels::cpu::Decode(buffers.Packets()[0], buffers.PacketScales()[0],
                                 Buffers::kElements, kBlock, nullptr, type, output);
          });
}

void DenseReduce(benchmark::State& state) {
  Buffers& buffers = Buffers::Get();
  const void* const inputs[] = {buffers.Numbers(0), buffers.Numbers(1), buffers.Output(1),
                                buffers.Output(2)};
  float* output = buffers.Output(0);
  TrafficBuffers traffic = {.write = {output}};
  std::copy_n(inputs, 4, traffic.read);
  Measure(state, BytesOfElements(DataType::kF32), Shape::kDense4, traffic, [&] {
    kernels::cpu::DenseReduce(inputs, 4, Buffers::kElements, DataType::kF32,
                              kernels::DenseOp::kAverage, output);
  });
}

void Checksum(benchmark::State& state) {
  const float* data = Buffers::Get().Numbers(0);
  const TrafficBuffers traffic = {.read = {data}};
  Measure(state, BytesOfElements(DataType::kF32), Shape::kRead, traffic, [&] {
    benchmark::DoNotOptimize(kernels::cpu::ChecksumOf(data, BytesOfElements(DataType::kF32)));
  });
}

void RegisterAll() {
  const auto add = [](const char* name, auto function, auto... arguments) {
    benchmark::RegisterBenchmark(name, function, arguments...)->Unit(benchmark::kMillisecond);
  };
  add("EfCompress/fp32/block4096", EfCompress, DataType::kF32, 4096);
  add("EfCompress/fp32/block64", EfCompress, DataType::kF32, 64);
  add("EfCompress/fp32/block1024", EfCompress, DataType::kF32, 1024);
  add("EfCompress/fp32/block65536", EfCompress, DataType::kF32, 65536);
  add("EfCompress/fp16/block4096", EfCompress, DataType::kF16, 4096);
  add("EfCompress/bf16/block4096", EfCompress, DataType::kBf16, 4096);
  add("EfCompressMultiPass/fp32", EfCompressMultiPass);
  add("Sign/fp32/block4096", Sign);
  add("ServerReduce/ranks8", ServerReduce);
  add("DecodeAverage/ranks8", DecodeAverage);
  add("Decode/fp32", Decode, DataType::kF32);
  add("Decode/bf16", Decode, DataType::kBf16);
  add("DenseReduce/ranks4", DenseReduce);
  add("Checksum", Checksum);
  RegisterLowBitBenchmarks();
  RegisterSparseBenchmarks();
  RegisterLosslessBenchmarks();
}

int Run(int argc, char** argv) {
  DeviceChoice device;
  int megabytes = 256;
  CLI::App app("Time the library's kernels on arrays too large for any cache.",
               std::string(ToolName()));
  AddDevice(app, &device);
  AddCount(app, "--megabytes", "size of each buffer of fp32 on a CUDA device", 1, kMostMegabytes,
           &megabytes);
  app.allow_extras();
  if (!ParseCommandLine(app, argc, argv)) {
    std::fputs("\nand the options of Google Benchmark:\n\n", stdout);
    benchmark::PrintDefaultHelp();
    return kExitOk;
  }
  std::vector<std::string> rest = app.remaining();
  std::vector<char*> arguments = {argv[0]};
  for (std::string& argument : rest) arguments.push_back(argument.data());
  int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return kExitUsage;
  std::optional<CudaSession> session;
  if (device.is_cuda) {
    session.emplace(CudaDeviceOf(device, 0), static_cast<size_t>(megabytes));
    RegisterCudaBenchmarks(*session);
  } else {
    RegisterAll();
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return kExitOk;
}

}  // namespace
}  // namespace onebit::perf

int main(int argc, char** argv) {
  using namespace onebit::perf;
  return RunTool(ToolName(), true, [&] {
    try {
      return Run(argc, argv);
    } catch (const NoCudaError& error) {
      fmt::print(stderr, "{}: {}\n", ToolName(), error.what());
      return kExitSkipped;
    }
  });
}
