// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/codec_perf_low_bit.h"

#include <benchmark/benchmark.h>

#include <array>
#include <vector>

#include "kernels/low_bit.h"
#include "perf/codec_perf_buffers.h"
#include "perf/codec_perf_ceiling.h"
#include "perf/codec_perf_measure.h"

namespace onebit::perf {
namespace {

using kernels::CompressInput;
using kernels::LowBitCodec;
using kernels::LowBitFormat;
using kernels::LowBitPacket;
using kernels::LowBitPacketView;
using kernels::LowBitReduceInput;

constexpr size_t kCount = Buffers::kElements;
constexpr size_t kBytes = kCount * sizeof(float);
constexpr size_t kRanks = 8;
// Codes lie in outputs that no row of these writes otherwise.
constexpr size_t kPacketsPerOutput = sizeof(float);  // of 8 bits

constexpr LowBitFormat kUint8 = {LowBitCodec::kUint8, 256};
constexpr LowBitFormat kInt8Stochastic = {LowBitCodec::kInt8Stochastic, 256};

// The packet of rank `rank`, or with kRanks the one that a kernel writes.
LowBitPacket PacketOf(size_t rank) {
  constexpr size_t kScales = kCount / 128;
  static std::vector<uint16_t> scales((kRanks + 1) * kScales), minimums((kRanks + 1) * kScales);
  float* output = Buffers::Get().Output(1 + rank / kPacketsPerOutput);
  return {.scales = scales.data() + rank * kScales,
          .minimums = minimums.data() + rank * kScales,
          .codes = reinterpret_cast<uint8_t*>(output) + rank % kPacketsPerOutput * kCount};
}

CompressInput Input(bool has_residual) {
  Buffers& buffers = Buffers::Get();
  return {.input = buffers.Numbers(0),
          .residual_in = has_residual ? buffers.Numbers(1) : nullptr,
          .residual_out = has_residual ? buffers.Output(0) : nullptr,
          .count = kCount};
}

std::array<LowBitPacketView, kRanks> MakePackets(LowBitFormat format, size_t ranks) {
  std::array<LowBitPacketView, kRanks> views;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const LowBitPacket packet = PacketOf(rank);
    kernels::cpu::LowBitCompress(Input(false), format, {}, packet);
    views[rank] = {packet.scales, packet.minimums, packet.codes};
  }
  return views;
}

void Compress(benchmark::State& state, LowBitFormat format, bool has_residual, Shape shape) {
  const CompressInput in = Input(has_residual);
  const LowBitPacket out = PacketOf(kRanks);
  TrafficBuffers traffic = {.read = {in.input}, .write = {out.codes}};
  if (has_residual) {
    traffic.read[1] = in.residual_in;
    traffic.write[0] = in.residual_out;
    traffic.write[1] = out.codes;
  }
  Measure(state, kBytes, shape, traffic,
          [&] { benchmark::DoNotOptimize(kernels::cpu::LowBitCompress(in, format, {}, out)); });
}

void Decode(benchmark::State& state, LowBitFormat format, Shape shape) {
  const LowBitPacketView packet = MakePackets(format, 1)[0];
  float* output = Buffers::Get().Output(0);
  Measure(state, kBytes, shape, {.read = {packet.codes}, .write = {output}}, [&] {
    kernels::cpu::LowBitDecode(packet, format, kCount, nullptr, kernels::DataType::kF32, output);
  });
}

// Sums kRanks packets into fp32, or, with `is_compressed`, into a packet.
void Sum(benchmark::State& state, LowBitFormat format, bool is_compressed, bool has_residual,
         Shape shape) {
  Buffers& buffers = Buffers::Get();
  const std::array<LowBitPacketView, kRanks> packets = MakePackets(format, kRanks);
  LowBitReduceInput in = {.packets = packets.data(), .ranks = kRanks, .count = kCount};
  const LowBitPacket out = PacketOf(kRanks);
  TrafficBuffers traffic;
  for (size_t rank = 0; rank < kRanks; ++rank) traffic.read[rank] = packets[rank].codes;
  traffic.write[0] = buffers.Output(0);
  if (is_compressed) traffic.write[has_residual ? 1 : 0] = out.codes;
  if (has_residual) {
    in.residual_in = traffic.read[kRanks] = buffers.Numbers(1);
    in.residual_out = buffers.Output(0);
  }
  Measure(state, kBytes, shape, traffic, [&] {
    if (is_compressed) {
      kernels::cpu::LowBitReduce(in, format, {}, out);
    } else {
      kernels::cpu::LowBitAverage(in, format, buffers.Output(0));
    }
  });
}

}  // namespace

void RegisterLowBitBenchmarks() {
  const auto add = [](const char* name, auto function, auto... arguments) {
    benchmark::RegisterBenchmark(name, function, arguments...)->Unit(benchmark::kMillisecond);
  };
  add("Fp4Compress", Compress, kFp4, false, Shape::kCompress4);
  add("Fp4EfCompress", Compress, kFp4, true, Shape::kEfCompress4);
  add("Int8Compress", Compress, kInt8, false, Shape::kCompress8);
  add("Int2EfCompress", Compress, kInt2, true, Shape::kEfCompress2);
  add("Uint8Compress", Compress, kUint8, false, Shape::kCompress8);
  add("Int8StochasticCompress", Compress, kInt8Stochastic, false, Shape::kCompress8);
  add("Fp4Decode", Decode, kFp4, Shape::kDecode4);
  add("Int8Decode", Decode, kInt8, Shape::kDecode8);
  add("Int2Decode", Decode, kInt2, Shape::kDecode2);
  add("Uint8Decode", Decode, kUint8, Shape::kDecode8);
  add("LowBitAverage/ranks8/fp4", Sum, kFp4, false, false, Shape::kAverage8Of4);
  add("LowBitAverage/ranks8/int8", Sum, kInt8, false, false, Shape::kAverage8Of8);
  add("LowBitAverage/ranks8/int2", Sum, kInt2, false, false, Shape::kAverage8Of2);
  add("LowBitReduce/ranks8/fp4", Sum, kFp4, true, false, Shape::kReduce8Of4);
  add("LowBitReduce/ranks8/int8", Sum, kInt8, true, false, Shape::kReduce8Of8);
  add("LowBitReduce/ranks8/int2", Sum, kInt2, true, true, Shape::kEfReduce8Of2);
}

}  // namespace onebit::perf
