// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Whole-tensor passes and four collectives.
#include "perf/studies/baselines/multi_pass.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "perf/codec_perf_multipass.h"
#include "perf/vector_clones.h"

namespace onebit::perf {
namespace {

constexpr size_t kPassElements = 64;  // CompressInSixPasses takes multiples of it
constexpr size_t kByteValues = 256;

// The eight signs of a byte, as numbers.
using SignsOfByte = std::array<std::array<float, 8>, kByteValues>;
constexpr SignsOfByte MakeSignsOfByte() {
  SignsOfByte table{};
  for (size_t byte = 0; byte < kByteValues; ++byte) {
    for (size_t bit = 0; bit < 8; ++bit) table[byte][bit] = (byte >> bit & 1) != 0 ? -1.0f : 1.0f;
  }
  return table;
}
constexpr SignsOfByte kSignsOfByte = MakeSignsOfByte();

void Unpack(const uint8_t* bits, float* signs, size_t count) {
  for (size_t i = 0; i < count; i += 8) {
    std::memcpy(signs + i, kSignsOfByte[bits[i / 8]].data(), 8 * sizeof(float));
  }
}

ONEBIT_PERF_CLONES
void AddScaled(const float* __restrict signs, float scale, float* __restrict sum, size_t count) {
  for (size_t i = 0; i < count; ++i) sum[i] += scale * signs[i];
}

ONEBIT_PERF_CLONES
void Scale(const float* __restrict signs, float scale, float* __restrict result, size_t count) {
  for (size_t i = 0; i < count; ++i) result[i] = scale * signs[i];
}

// All zero, and touched.
Buffer ZeroBuffer(size_t bytes) {
  Buffer buffer(std::max<size_t>(bytes, 1));
  std::memset(buffer.data(), 0, std::max<size_t>(bytes, 1));
  return buffer;
}

Buffer ZeroFloats(size_t count) { return ZeroBuffer(count * sizeof(float)); }

}  // namespace

size_t MultiPassChunk(size_t count, int ranks) {
  const auto chunks = static_cast<size_t>(ranks);
  const size_t share = (count + chunks - 1) / chunks;
  return (share + kPassElements - 1) / kPassElements * kPassElements;
}

MultiPassAllReduce::MultiPassAllReduce(Exchange& exchange, size_t count)
    : exchange_(exchange),
      count_(count),
      chunk_(MultiPassChunk(count, exchange.ranks())),
      padded_(chunk_ * static_cast<size_t>(exchange.ranks())),
      input_(ZeroFloats(count == padded_ ? 0 : padded_)),
      worker_error_(ZeroFloats(padded_)),
      compensated_(ZeroFloats(padded_)),
      signs_(ZeroFloats(padded_)),
      decoded_(ZeroFloats(padded_)),
      server_sum_(ZeroFloats(chunk_)),
      server_error_(ZeroFloats(chunk_)),
      sent_bits_(ZeroBuffer(padded_ / 8)),
      received_bits_(ZeroBuffer(padded_ / 8)),
      server_bits_(ZeroBuffer(chunk_ / 8)),
      result_bits_(ZeroBuffer(padded_ / 8)),
      worker_scales_(ZeroFloats(static_cast<size_t>(exchange.ranks()))),
      server_scales_(ZeroFloats(static_cast<size_t>(exchange.ranks()))) {}

void MultiPassAllReduce::Reset() {
  std::memset(worker_error_.data(), 0, padded_ * sizeof(float));
  std::memset(server_error_.data(), 0, chunk_ * sizeof(float));
}

void MultiPassAllReduce::Call(const float* send, float* recv) {
  if (count_ == 0) return;
  CompressInput(send);
  exchange_.AllToAll(bytes(sent_bits_), bytes(received_bits_), chunk_ / 8);
  exchange_.AllGather(&worker_scale_, floats(worker_scales_), sizeof(float));
  ReduceChunk();
  exchange_.AllGather(bytes(server_bits_), bytes(result_bits_), chunk_ / 8);
  exchange_.AllGather(&server_scale_, floats(server_scales_), sizeof(float));
  Decode(recv);
}

void MultiPassAllReduce::CompressInput(const float* send) {
  const float* input = send;
  if (padded_ != count_) {
    std::memcpy(floats(input_), send, count_ * sizeof(float));  // the pads stay zero
    input = floats(input_);
  }
  worker_scale_ = CompressInSixPasses({.input = input,
                                       .residual_in = floats(worker_error_),
                                       .residual_out = floats(worker_error_),
                                       .compensated = floats(compensated_),
                                       .signs = floats(signs_),
                                       .decoded = floats(decoded_),
                                       .bits = bytes(sent_bits_),
                                       .count = padded_});
}

// Averages what all ranks sent for this rank's chunk, and compresses the mean.
void MultiPassAllReduce::ReduceChunk() {
  float* const sum = floats(server_sum_);
  std::memset(sum, 0, chunk_ * sizeof(float));
  const auto ranks = static_cast<size_t>(exchange_.ranks());
  for (size_t rank = 0; rank < ranks; ++rank) {
    Unpack(bytes(received_bits_) + rank * (chunk_ / 8), floats(signs_), chunk_);
    AddScaled(floats(signs_), floats(worker_scales_)[rank] / static_cast<float>(ranks), sum,
              chunk_);
  }
  server_scale_ = CompressInSixPasses({.input = sum,
                                       .residual_in = floats(server_error_),
                                       .residual_out = floats(server_error_),
                                       .compensated = floats(compensated_),
                                       .signs = floats(signs_),
                                       .decoded = floats(decoded_),
                                       .bits = bytes(server_bits_),
                                       .count = chunk_});
}

// The mean times the number of ranks is the sum.
void MultiPassAllReduce::Decode(float* recv) {
  Unpack(bytes(result_bits_), floats(signs_), padded_);
  const auto ranks = static_cast<size_t>(exchange_.ranks());
  for (size_t rank = 0; rank < ranks; ++rank) {
    const size_t begin = std::min(rank * chunk_, count_);
    const size_t end = std::min(begin + chunk_, count_);
    Scale(floats(signs_) + begin, floats(server_scales_)[rank] * static_cast<float>(ranks),
          recv + begin, end - begin);
  }
}

}  // namespace onebit::perf
