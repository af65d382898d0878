// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Every batch of launches is followed by copies of 256 MiB of fp32, or what is set, from one buffer
// of the device to another. Times are the device's own, by events around a batch. The counters:
//   gbps           logical bytes per second / 1e9: elements times the size of the uncompressed type
//   moved_gbps     what the kernel must read and write, likewise
//   copy_gbps      what a copy reads and writes, the best of them
//   ceiling_share  moved_gbps / copy_gbps
#include "perf/codec_perf_cuda.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/cuda/low_bit_params.h"
#include "kernels/cuda/params.h"
#include "kernels/low_bit.h"
#include "perf/codec_perf_cuda_session.h"
#include "perf/codec_perf_low_bit.h"

namespace onebit::perf {
namespace {

using kernels::DataType;
using kernels::LowBitFormat;
using kernels::cuda::Kernel;
using kernels::cuda::PieceList;

constexpr size_t kPacketBlock = CudaSession::kPacketBlock;
constexpr uint32_t kRanks = CudaSession::kPackets;

// One benchmark: its kernel, its parameters and the bytes that count.
struct Launch {
  std::function<void()> enqueue;
  size_t logical_bytes = 0;
  size_t moved_bytes = 0;
};

// A batch takes some milliseconds, so the cost of events and of the host is negligible.
int LaunchesInBatch(double seconds) {
  constexpr double kBatchSeconds = 0.01;
  constexpr int kMost = 100;
  return std::clamp(static_cast<int>(kBatchSeconds / std::max(seconds, 1e-9)), 1, kMost);
}

void Measure(benchmark::State& state, const CudaSession& session, const Launch& launch) {
  const auto copy = [&] { session.CopyOnDevice(); };
  session.SecondsOf(1, launch.enqueue);  // the first run is slow
  const int launches = LaunchesInBatch(session.SecondsOf(1, launch.enqueue));
  session.SecondsOf(1, copy);
  const int copies = LaunchesInBatch(session.SecondsOf(1, copy));
  std::vector<double> kernel_seconds;
  double copy_seconds = session.SecondsOf(copies, copy);
  // Iterations are timed by the host's clock; a manual time would become part of the benchmark's
  // name.
  while (state.KeepRunningBatch(launches)) {
    kernel_seconds.push_back(session.SecondsOf(launches, launch.enqueue));
    state.PauseTiming();
    copy_seconds = std::min(copy_seconds, session.SecondsOf(copies, copy));
    state.ResumeTiming();
  }
  if (session.HasFaults()) state.SkipWithError("a value was not finite: the figures mean nothing");
  const auto middle = kernel_seconds.begin() + static_cast<ptrdiff_t>(kernel_seconds.size() / 2);
  std::nth_element(kernel_seconds.begin(), middle, kernel_seconds.end());
  const double copy_gbps = 2 * static_cast<double>(session.float_bytes()) / copy_seconds / 1e9;
  const double moved_gbps = static_cast<double>(launch.moved_bytes) / *middle / 1e9;
  state.counters["gbps"] = static_cast<double>(launch.logical_bytes) / *middle / 1e9;
  state.counters["moved_gbps"] = moved_gbps;
  state.counters["copy_gbps"] = copy_gbps;
  state.counters["ceiling_share"] = moved_gbps / copy_gbps;
}

size_t ScaleBytes(const CudaSession& session, size_t block) {
  return kernels::BlockCount(session.elements(), block) * sizeof(float);
}

// All elements as one piece; a warp takes `tile_elements` at a time.
PieceList WholeBuffer(const CudaSession& session, size_t tile_elements) {
  PieceList list;
  list.count = 1;
  list.tiles = static_cast<uint32_t>(kernels::BlockCount(session.elements(), tile_elements));
  list.pieces[0].count = session.elements();
  list.pieces[0].scales = session.scales();
  list.pieces[0].bits = session.bits();
  list.pieces[0].faults = session.faults();
  return list;
}

void AddResidual(const CudaSession& session, PieceList* list) {
  list->pieces[0].residuals[0] = session.Floats(1);
  list->pieces[0].residuals[1] = session.Floats(2);
}

// The parameters of kernels whose input is packets.
kernels::cuda::ReduceParams OfPackets(const CudaSession& session, size_t tile_elements) {
  kernels::cuda::ReduceParams params;
  params.stride = session.packet_stride();
  params.ranks = kRanks;
  params.block = kPacketBlock;
  params.list = WholeBuffer(session, tile_elements);
  params.list.pieces[0].source = session.packets();
  params.list.pieces[0].own_source = session.packets();
  params.list.pieces[0].source_bits = session.packet_scale_bytes();
  return params;
}

template <class Params>
Launch LaunchOf(const CudaSession& session, Kernel kernel, const Params& params,
                size_t logical_bytes, size_t moved_bytes) {
  return {[&session, kernel, params] { session.Launch(kernel, &params); }, logical_bytes,
          moved_bytes};
}

Launch EfCompress(const CudaSession& session, DataType type, size_t block) {
  kernels::cuda::CompressParams params;
  params.input_type = type;
  params.block = static_cast<uint32_t>(block);
  params.list = WholeBuffer(session, block);
  const void* const input = type == DataType::kF32 ? session.Floats(0) : session.halves();
  params.list.pieces[0].values = const_cast<void*>(input);
  AddResidual(session, &params.list);
  const size_t logical = session.elements() * kernels::BytesOf(type);
  return LaunchOf(
      session, Kernel::kCompressBlocks, params, logical,
      logical + 2 * session.float_bytes() + session.bit_bytes() + ScaleBytes(session, block));
}

Launch Sign(const CudaSession& session) {
  kernels::cuda::CompressParams params;
  params.block = kPacketBlock;
  params.list = WholeBuffer(session, kPacketBlock);
  params.list.pieces[0].values = session.Floats(0);
  return LaunchOf(session, Kernel::kCompressBlocks, params, session.float_bytes(),
                  session.float_bytes() + session.bit_bytes() + ScaleBytes(session, kPacketBlock));
}

Launch ServerReduce(const CudaSession& session) {
  kernels::cuda::ReduceParams params = OfPackets(session, kPacketBlock);
  AddResidual(session, &params.list);
  return LaunchOf(session, Kernel::kReduceBlocks, params, session.float_bytes(),
                  (kRanks + 1) * session.packet_stride() + 2 * session.float_bytes());
}

Launch DecodeAverage(const CudaSession& session) {
  kernels::cuda::ReduceParams params = OfPackets(session, kernels::kTensorSumBlock);
  params.list.pieces[0].values = session.Floats(2);
  return LaunchOf(session, Kernel::kDecodeAverage, params, session.float_bytes(),
                  kRanks * session.packet_stride() + session.float_bytes());
}

Launch Decode(const CudaSession& session, DataType type) {
  kernels::cuda::DecodeParams params;
  params.output_type = type;
  params.block = kPacketBlock;
  params.list = WholeBuffer(session, kernels::kTensorSumBlock);
  params.list.pieces[0].values = session.Floats(2);
  // A packet that is read only.
  auto* const packet = const_cast<std::byte*>(session.packets());
  params.list.pieces[0].scales = reinterpret_cast<float*>(packet);
  params.list.pieces[0].bits = reinterpret_cast<uint8_t*>(packet + session.packet_scale_bytes());
  const size_t logical = session.elements() * kernels::BytesOf(type);
  return LaunchOf(session, Kernel::kDecode, params, logical, session.packet_stride() + logical);
}

Launch DenseReduce(const CudaSession& session) {
  constexpr uint32_t kInputs = 4;
  const auto* const inputs = reinterpret_cast<const std::byte*>(session.Floats(0));
  const kernels::cuda::DenseReduceParams params = {.pieces = {.sources = inputs,
                                                              .stride = session.float_bytes(),
                                                              .own_source = inputs,
                                                              .rank = 0,
                                                              .ranks = kInputs},
                                                   .output = session.Floats(kInputs),
                                                   .op = kernels::DenseOp::kAverage,
                                                   .count = session.elements()};
  return LaunchOf(session, Kernel::kDenseReduce, params, session.float_bytes(),
                  (kInputs + 1) * session.float_bytes());
}

Launch Checksum(const CudaSession& session) {
  kernels::cuda::ChecksumParams params;
  params.count = 1;
  params.spans[0] = {.data = reinterpret_cast<const std::byte*>(session.Floats(0)),
                     .bytes = session.float_bytes(),
                     .checksum = session.checksum()};
  return LaunchOf(session, Kernel::kChecksum, params, session.float_bytes(), session.float_bytes());
}

// x, m and v change with each launch but stay ordinary numbers however often it runs.
Launch Adam(const CudaSession& session, Kernel kernel) {
  const kernels::AdamUpdate update = {.x = session.Floats(2),
                                      .m = session.Floats(3),
                                      .v = session.Floats(4),
                                      .input = session.Floats(0),
                                      .count = session.elements(),
                                      .lr = 1e-3f,
                                      .beta1 = 0.9f,
                                      .one_minus_beta1 = 0.1f,
                                      .beta2 = 0.999f,
                                      .one_minus_beta2 = 0.001f,
                                      .eps = 1e-8f};
  constexpr uint8_t kPositive = 0x3f;  // all bytes of an fp32: 0.747
  session.Fill(session.Floats(4), kPositive);
  session.Fill(session.Floats(2), 0);
  session.Fill(session.Floats(3), 0);
  // Dense reads g, x, m, v and writes x, m, v; frozen reads m', x, v and writes x, m.
  const size_t buffers = kernel == Kernel::kAdamDense ? 7 : 5;
  return LaunchOf(session, kernel, update, session.float_bytes(), buffers * session.float_bytes());
}

// ---- Low-bit packets

size_t LowBitBytes(const CudaSession& session, LowBitFormat format) {
  return kernels::ScaleBytes(format.codec, kernels::BlockCount(session.elements(), format.block)) +
         kernels::CodeBytes(format.codec, session.elements());
}

// The packet of rank `rank`, or with kRanks the one that a kernel writes. They take up to 9.1 of
// the 12 bytes for each element that three buffers have.
std::byte* LowBitPacketAt(const CudaSession& session, LowBitFormat format, size_t rank) {
  return reinterpret_cast<std::byte*>(session.Floats(3)) + rank * LowBitBytes(session, format);
}

// All elements as one piece. Error feedback has a fault word.
kernels::cuda::LowBitPieceList LowBitBuffer(const CudaSession& session, LowBitFormat format,
                                            size_t tile_elements, bool has_residual) {
  kernels::cuda::LowBitPieceList list;
  list.count = 1;
  list.tiles = static_cast<uint32_t>(kernels::BlockCount(session.elements(), tile_elements));
  kernels::cuda::LowBitPiece& piece = list.pieces[0];
  piece.count = session.elements();
  piece.scale_count = static_cast<uint32_t>(kernels::BlockCount(session.elements(), format.block));
  if (has_residual) {
    piece.residuals[0] = session.Floats(1);
    piece.residuals[1] = session.Floats(2);
    piece.faults = session.faults();
  }
  return list;
}

kernels::cuda::LowBitCompressParams LowBitCompressOf(const CudaSession& session,
                                                     LowBitFormat format, bool has_residual,
                                                     size_t rank) {
  kernels::cuda::LowBitCompressParams params;
  params.codec = format.codec;
  params.block = static_cast<uint32_t>(format.block);
  params.list = LowBitBuffer(session, format, format.block, has_residual);
  params.list.pieces[0].values = session.Floats(0);
  params.list.pieces[0].packet = LowBitPacketAt(session, format, rank);
  return params;
}

// Enqueues the packets of `ranks` ranks.
void MakeLowBitPackets(const CudaSession& session, LowBitFormat format, size_t ranks) {
  for (size_t rank = 0; rank < ranks; ++rank) {
    const auto params = LowBitCompressOf(session, format, false, rank);
    session.Launch(Kernel::kLowBitCompress, &params);
  }
}

Launch LowBitCompress(const CudaSession& session, LowBitFormat format, bool has_residual) {
  const auto params = LowBitCompressOf(session, format, has_residual, kRanks);
  return LaunchOf(session, Kernel::kLowBitCompress, params, session.float_bytes(),
                  (has_residual ? 3 : 1) * session.float_bytes() + LowBitBytes(session, format));
}

Launch LowBitDecode(const CudaSession& session, LowBitFormat format) {
  MakeLowBitPackets(session, format, 1);
  kernels::cuda::LowBitDecodeParams params;
  params.codec = format.codec;
  params.block = static_cast<uint32_t>(format.block);
  params.list = LowBitBuffer(session, format, kernels::kTensorSumBlock, false);
  params.list.pieces[0].values = session.Floats(2);
  params.list.pieces[0].packet = LowBitPacketAt(session, format, 0);
  return LaunchOf(session, Kernel::kLowBitDecode, params, session.float_bytes(),
                  LowBitBytes(session, format) + session.float_bytes());
}

Launch LowBitSum(const CudaSession& session, LowBitFormat format, Kernel kernel,
                 bool has_residual) {
  MakeLowBitPackets(session, format, kRanks);
  const bool is_reduce = kernel == Kernel::kLowBitReduce;
  kernels::cuda::LowBitReduceParams params;
  params.codec = format.codec;
  params.block = static_cast<uint32_t>(format.block);
  params.stride = LowBitBytes(session, format);
  params.ranks = kRanks;
  params.list = LowBitBuffer(session, format, is_reduce ? format.block : kernels::kTensorSumBlock,
                             has_residual);
  kernels::cuda::LowBitPiece& piece = params.list.pieces[0];
  piece.source = piece.own_source = LowBitPacketAt(session, format, 0);
  piece.values = session.Floats(2);
  piece.packet = LowBitPacketAt(session, format, kRanks);
  const size_t written = is_reduce ? params.stride : session.float_bytes();
  return LaunchOf(
      session, kernel, params, session.float_bytes(),
      kRanks * params.stride + written + (has_residual ? 2 : 0) * session.float_bytes());
}

}  // namespace

void RegisterCudaBenchmarks(const CudaSession& session) {
  // Every benchmark makes its launch when it runs: some prepare buffers for it.
  const auto add = [&session](const char* name, auto make, auto... arguments) {
    benchmark::RegisterBenchmark(name, [&session, make, arguments...](benchmark::State& state) {
      try {
        Measure(state, session, make(session, arguments...));
      } catch (const ToolError& error) {
        state.SkipWithError(error.what());
      }
    })->Unit(benchmark::kMillisecond);
  };
  add("EfCompress/fp32/block4096", EfCompress, DataType::kF32, size_t{4096});
  add("EfCompress/fp32/block64", EfCompress, DataType::kF32, size_t{64});
  add("EfCompress/fp32/block1024", EfCompress, DataType::kF32, size_t{1024});
  add("EfCompress/fp32/block65536", EfCompress, DataType::kF32, size_t{65536});
  add("EfCompress/fp16/block4096", EfCompress, DataType::kF16, size_t{4096});
  add("EfCompress/bf16/block4096", EfCompress, DataType::kBf16, size_t{4096});
  add("Sign/fp32/block4096", Sign);
  add("ServerReduce/ranks8", ServerReduce);
  add("DecodeAverage/ranks8", DecodeAverage);
  add("Decode/fp32", Decode, DataType::kF32);
  add("Decode/bf16", Decode, DataType::kBf16);
  add("DenseReduce/ranks4", DenseReduce);
  add("Checksum", Checksum);
  add("AdamDense/fp32", Adam, Kernel::kAdamDense);
  add("AdamFrozen/fp32", Adam, Kernel::kAdamFrozen);
  add("Fp4Compress", LowBitCompress, kFp4, false);
  add("Fp4EfCompress", LowBitCompress, kFp4, true);
  add("Int8Compress", LowBitCompress, kInt8, false);
  add("Int2EfCompress", LowBitCompress, kInt2, true);
  add("Fp4Decode", LowBitDecode, kFp4);
  add("Int8Decode", LowBitDecode, kInt8);
  add("Int2Decode", LowBitDecode, kInt2);
  add("LowBitAverage/ranks8/fp4", LowBitSum, kFp4, Kernel::kLowBitAverage, false);
  add("LowBitAverage/ranks8/int8", LowBitSum, kInt8, Kernel::kLowBitAverage, false);
  add("LowBitAverage/ranks8/int2", LowBitSum, kInt2, Kernel::kLowBitAverage, false);
  add("LowBitReduce/ranks8/fp4", LowBitSum, kFp4, Kernel::kLowBitReduce, false);
  add("LowBitReduce/ranks8/int8", LowBitSum, kInt8, Kernel::kLowBitReduce, false);
  add("LowBitReduce/ranks8/int2", LowBitSum, kInt2, Kernel::kLowBitReduce, true);
}

}  // namespace onebit::perf
