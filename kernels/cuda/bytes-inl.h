// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Checksums and fills of byte spans, and the end of a call.
#pragma once

#include <cstdint>

#include "kernels/cuda/params.h"
#include "kernels/cuda/quads.h"
#include "kernels/cuda/tiles.h"

namespace onebit::kernels::cuda {

// Calls body(begin, end) for this warp's tiles of a span of bytes. Tiles are numbered across all
// spans; `first_tile` advances to the next one.
template <class Body>
ONEBIT_KERNEL void ForEachByteTile(const Warp& warp, uint64_t bytes, uint64_t* first_tile,
                                   const Body& body) {
  const uint64_t first_warp = *first_tile % warp.count();
  const uint64_t mine = warp.index() >= first_warp ? warp.index() - first_warp
                                                   : warp.index() + warp.count() - first_warp;
  for (uint64_t begin = mine * kByteTile; begin < bytes; begin += warp.count() * kByteTile) {
    body(begin, Smaller(bytes, begin + kByteTile));
  }
  *first_tile += (bytes + kByteTile - 1) / kByteTile;
}

// Loads four words at byte `at` of a span, word by word if it `has_words`, which are aligned. Bytes
// from `end` on are 0.
ONEBIT_KERNEL Quad<uint32_t> LoadWordsUntil(const std::byte* data, uint64_t at, uint64_t end,
                                            bool has_words) {
  Quad<uint32_t> words;
  const auto* const bytes = reinterpret_cast<const uint8_t*>(data);
  ONEBIT_UNROLL
  for (unsigned w = 0; w < kQuad; ++w) {
    const uint64_t begin = at + 4 * w;
    if (has_words && begin + 4 <= end) {
      words.at[w] = *reinterpret_cast<const uint32_t*>(data + begin);
      continue;
    }
    for (uint64_t b = begin; b < begin + 4 && b < end; ++b) {
      words.at[w] |= uint32_t{bytes[b]} << (8 * (b - begin));
    }
  }
  return words;
}

// Adds this warp's tiles of a span to *checksum and returns their number.
ONEBIT_KERNEL uint32_t AddTiles(const Warp& warp, const std::byte* data, uint64_t bytes,
                                uint64_t* first_tile, Checksum* checksum) {
  constexpr unsigned kRun = 16 * kLanes;  // bytes that all lanes load at a time
  constexpr unsigned kRuns = kByteTile / kRun;
  const bool is_aligned = IsAligned(data, 16);
  const bool has_words = IsAligned(data, 4);
  uint32_t tiles = 0;
  Lanes<uint32_t> sums;
  Lanes<uint32_t> weighted;
  ForEachByteTile(warp, bytes, first_tile, [&](uint64_t begin, uint64_t end) {
    ++tiles;
    const auto add = [&](unsigned lane, uint64_t at, const Quad<uint32_t>& words) {
      ONEBIT_UNROLL
      for (unsigned w = 0; w < kQuad; ++w) {
        sums[lane] += words.at[w];
        weighted[lane] += static_cast<uint32_t>(at / 4 + w + 1) * words.at[w];
      }
    };
    warp.ForEachLane([&](unsigned lane) {
      if (!is_aligned || end - begin != kByteTile) {
        for (uint64_t at = begin + 16 * lane; at < end; at += kRun) {
          add(lane, at, LoadWordsUntil(data, at, end, has_words));
        }
        return;
      }
      const uint64_t at = begin + 16 * lane;
      Quad<uint32_t> runs[kRuns];
      ONEBIT_UNROLL
      for (unsigned r = 0; r < kRuns; ++r) LoadWords(data + at + r * kRun, runs[r].at);
      ONEBIT_UNROLL
      for (unsigned r = 0; r < kRuns; ++r) add(lane, at + r * kRun, runs[r]);
    });
  });
  if (tiles == 0) return 0;
  const uint32_t sum = SumOf(warp, sums);
  const uint32_t weighted_sum = SumOf(warp, weighted);
  warp.Once([&] {
    if (sum != 0) AtomicAdd(&checksum->sum, sum);
    if (weighted_sum != 0) AtomicAdd(&checksum->weighted, weighted_sum);
  });
  return tiles;
}

ONEBIT_KERNEL void RunChecksum(const Warp& warp, const ChecksumParams& p) {
  uint64_t first_tile = 0;
  const int64_t shift = p.current != nullptr && (*p.current & 1) != 0 ? p.shift : 0;
  for (uint32_t k = 0; k < p.count; ++k) {
    const ByteSpan& span = p.spans[k];
    AddTiles(warp, span.data + shift, span.bytes, &first_tile, span.checksum);
  }
}

// One message of a run.
struct Message {
  const CallMessages& call;
  std::byte* header;
  uint32_t peer;
  Checksum checksum;  // of its payload
};

// Adds this warp's tiles of message number `index` of a run to the checksum of its payload. Calls
// body(message) on the warp that adds the last one.
template <class Body>
ONEBIT_KERNEL void AddPayload(const Warp& warp, const CallMessages& call, const MessageRun& run,
                              uint32_t index, uint64_t* first_tile, const Body& body) {
  std::byte* const header = run.header + index * run.stride;
  const uint32_t peer = run.peer + index;
  if (run.bytes == 0) {
    const bool is_mine = warp.index() == *first_tile % warp.count();
    ++*first_tile;
    if (is_mine) body(Message{call, header, peer, {}});
    return;
  }
  PayloadSum* const sum = run.sums + index;
  const uint32_t tiles =
      AddTiles(warp, header + kHeaderBytes, run.bytes, first_tile, &sum->checksum);
  if (tiles == 0) return;
  Lanes<uint32_t> words[3];  // on the first lane: tiles so far, and the checksum
  warp.Once([&] {
    words[0][0] = AtomicAddInOrder(&sum->tiles, tiles) + tiles;
    words[1][0] = AtomicAdd(&sum->checksum.sum, 0);
    words[2][0] = AtomicAdd(&sum->checksum.weighted, 0);
  });
  if (warp.Broadcast(words[0], 0) != BlockCount(run.bytes, kByteTile)) return;
  body(Message{call, header, peer, {warp.Broadcast(words[1], 0), warp.Broadcast(words[2], 0)}});
}

// Adds up the payloads of all messages. Calls body(message) for each.
template <class List, class Body>
ONEBIT_KERNEL void ForEachMessage(const Warp& warp, const List& list, const Body& body) {
  uint64_t first_tile = 0;
  for (uint32_t c = 0; c < list.count; ++c) {
    const CallMessages& call = list.calls[c];
    for (uint32_t r = 0; r < call.run_count; ++r) {
      for (uint32_t i = 0; i < call.runs[r].count; ++i) {
        AddPayload(warp, call, call.runs[r], i, &first_tile, body);
      }
    }
  }
}

// Returns the word that fills memory, in memory order: elements do not straddle words.
ONEBIT_KERNEL uint32_t WordOf(FillValue value) {
  switch (value) {
    case FillValue::kZeroBytes:
      return 0;
    case FillValue::kNanF32:
      return 0x7FC00000u;
    case FillValue::kNanF16:
      return 0x7E007E00u;
    case FillValue::kNanBf16:
      return 0x7FC07FC0u;
  }
  return 0;
}

template <unsigned kSpans>
ONEBIT_KERNEL void RunFillIf(const Warp& warp, const FillParamsOf<kSpans>& p) {
  uint64_t first_tile = 0;
  for (uint32_t k = 0; k < p.count; ++k) {
    const FillSpan& span = p.spans[k];
    if (span.count == 0) continue;
    const uint32_t decision = span.decision == nullptr ? 0 : *span.decision;
    if (span.condition != nullptr && (*span.condition | decision) == 0) continue;
    const uint32_t word = WordOf(span.value);
    const uint32_t words[4] = {word, word, word, word};
    // Runs of 16 bytes at multiples of 16; the first and the last may partly be other memory.
    auto* const data = static_cast<uint8_t*>(span.data);
    const uint64_t before = reinterpret_cast<uintptr_t>(data) % 16;
    const uint64_t bytes = before + span.count * BytesOfFill(span.value);
    ForEachByteTile(warp, bytes, &first_tile, [&](uint64_t begin, uint64_t end) {
      for (uint64_t run = begin; run < end; run += 16 * kLanes) {
        warp.ForEachLane([&](unsigned lane) {
          const uint64_t at = run + 16 * lane;
          if (at >= before && at + 16 <= end) {
            StoreWords(words, data + (at - before));
            return;
          }
          for (uint64_t b = at; b < at + 16 && b < end; ++b) {
            if (b >= before) data[b - before] = static_cast<uint8_t>(word >> (8 * (b % 4)));
          }
        });
      }
    });
  }
}

ONEBIT_KERNEL void AddTo(uint64_t* word, uint64_t value) {
  AtomicAdd(reinterpret_cast<unsigned long long*>(word), value);
}

template <unsigned kCalls>
ONEBIT_KERNEL void Commit(const CommitParamsOf<kCalls>& p, const EndedCall& call) {
  const uint32_t decision = call.decision == nullptr ? 0 : *call.decision;
  const uint32_t faults = (call.faults == nullptr ? 0 : *call.faults) | decision;
  CompressorWords* const words = call.words;
  if (words != nullptr && faults == 0 && !call.is_alone) {
    if (call.has_two_generations) words->current = (~words->current & 1u) | kHasPrevious;
    ++words->epoch;
    ++words->age;
  }
  if (words != nullptr && faults != 0) {
    words->current &= 1u;
    if (faults == kNonfinite) ++words->nonfinite_calls;
    if (!call.has_two_generations) {
      words->age = 0;
      ++words->residual_resets;
    }
  }
  if (call.sequence != nullptr) AddTo(call.sequence, 1);
  if (p.nonfinite_calls != nullptr && faults == kNonfinite) AddTo(p.nonfinite_calls, 1);
  const bool has_failed = (faults & (kFailed | kPeerFailed)) != 0;
  if (words != nullptr && has_failed && (faults & kHalted) == 0) words->has_failed = 1;
  if (p.halted != nullptr && has_failed) AtomicOr(p.halted, kHalted);
  if (call.faults != nullptr) *call.faults = 0;
}

template <unsigned kCalls>
ONEBIT_KERNEL void RunCommit(const Warp& warp, const CommitParamsOf<kCalls>& p) {
  warp.ForEachLane([&](unsigned lane) {
    for (uint32_t k = warp.index() * kLanes + lane; k < p.count; k += warp.count() * kLanes) {
      Commit(p, p.calls[k]);
    }
  });
}

}  // namespace onebit::kernels::cuda
