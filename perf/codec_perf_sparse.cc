// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/codec_perf_sparse.h"

#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>

#include "kernels/sparse.h"
#include "perf/codec_perf_buffers.h"
#include "perf/codec_perf_ceiling.h"
#include "perf/codec_perf_measure.h"

namespace onebit::perf {
namespace {

using kernels::CompressInput;
using kernels::SparseFormat;
using kernels::SparseReduceInput;
using kernels::SparseValues;

constexpr size_t kCount = Buffers::kElements;
constexpr size_t kBytes = kCount * sizeof(float);
constexpr size_t kRanks = 8;

constexpr SparseFormat kTop64 = {{.k = 64}};
constexpr SparseFormat kTop64F32 = {{.k = 64, .values = SparseValues::kF32}};
constexpr SparseFormat kTop341 = {{.k = 341}};
constexpr SparseFormat kRand64 = {{.k = 64, .is_random = true}};

// Packets lie in an output that no row of these writes otherwise. kRanks is that which a kernel
// writes.
void* PacketOf(SparseFormat format, size_t rank) {
  constexpr size_t kAlignment = 64;
  const size_t stride = (format.Bytes(kCount) + kAlignment - 1) / kAlignment * kAlignment;
  return reinterpret_cast<uint8_t*>(Buffers::Get().Output(1)) + rank * stride;
}

CompressInput Input(bool has_residual) {
  Buffers& buffers = Buffers::Get();
  return {.input = buffers.Numbers(0),
          .residual_in = has_residual ? buffers.Numbers(1) : nullptr,
          .residual_out = has_residual ? buffers.Output(0) : nullptr,
          .count = kCount};
}

void Compress(benchmark::State& state, SparseFormat format, bool has_residual) {
  const CompressInput in = Input(has_residual);
  TrafficBuffers traffic = {.read = {in.input}};
  if (has_residual) {
    traffic.read[1] = in.residual_in;
    traffic.write[0] = in.residual_out;
  }
  void* const packet = PacketOf(format, kRanks);
  Measure(state, kBytes, has_residual ? Shape::kUpdate : Shape::kRead, traffic, [&] {
    benchmark::DoNotOptimize(kernels::cpu::SparseCompress(in, 1, format, {}, packet));
  });
}

// Sums the packets of `ranks` ranks into fp32, or, with `is_compressed`, into a packet.
void Sum(benchmark::State& state, SparseFormat format, size_t ranks, bool is_compressed) {
  Buffers& buffers = Buffers::Get();
  std::array<const void*, kRanks> packets;
  for (size_t rank = 0; rank < ranks; ++rank) {
    // Every rank has other numbers.
    CompressInput in = Input(false);
    if (rank % 2 == 1) in.input = buffers.Numbers(1);
    kernels::cpu::SparseCompress(in, 1, format, {}, PacketOf(format, rank));
    packets[rank] = PacketOf(format, rank);
  }
  SparseReduceInput in = {.packets = packets.data(), .ranks = ranks, .count = kCount};
  TrafficBuffers traffic = {.write = {buffers.Output(0)}};
  if (is_compressed) {
    in.residual_in = traffic.read[0] = buffers.Numbers(1);
    in.residual_out = buffers.Output(0);
  }
  Measure(state, kBytes, is_compressed ? Shape::kServerUpdate : Shape::kWrite, traffic, [&] {
    if (is_compressed) {
      kernels::cpu::SparseReduce(in, format, {}, PacketOf(format, kRanks));
    } else {
      kernels::cpu::SparseAverage(in, format, {}, buffers.Output(0));
    }
  });
}

}  // namespace

void RegisterSparseBenchmarks() {
  const auto add = [](const char* name, auto function, auto... arguments) {
    benchmark::RegisterBenchmark(name, function, arguments...)->Unit(benchmark::kMillisecond);
  };
  add("TopkCompress/k64", Compress, kTop64, false);
  add("TopkCompress/k64/fp32", Compress, kTop64F32, false);
  add("TopkCompress/k341", Compress, kTop341, false);
  add("TopkEfCompress/k64", Compress, kTop64, true);
  add("RandkEfCompress/k64", Compress, kRand64, true);
  add("TopkDecode/k64", Sum, kTop64, size_t{1}, false);
  add("TopkAverage/ranks8/k64", Sum, kTop64, kRanks, false);
  add("RandkAverage/ranks8/k64", Sum, kRand64, kRanks, false);
  add("TopkEfReduce/ranks8/k64", Sum, kTop64, kRanks, true);
}

}  // namespace onebit::perf
