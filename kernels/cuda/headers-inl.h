// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Message headers (FORMAT.md, "Header") and the checksums in them. Each lane holds a 32-bit word of
// the header; the lanes beyond its end hold none.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cuda/bytes-inl.h"
#include "kernels/cuda/params.h"
#include "kernels/cuda/quads.h"
#include "kernels/cuda/tiles.h"

namespace onebit::kernels::cuda {

inline constexpr unsigned kHeaderWords = kHeaderBytes / 4;

// Words of the header that kernels use, and bits in them.
inline constexpr unsigned kFlagsWord = 1;  // version, exchange, flags, replica age
inline constexpr uint32_t kFlagsBits = 0x00FF0000u;
inline constexpr uint32_t kNonfiniteFlag = 0x00010000u;
inline constexpr uint32_t kFailureFlag = 0x00040000u;
inline constexpr unsigned kAgeShift = 24;
inline constexpr uint32_t kAgeBits = 0xFF000000u;
inline constexpr unsigned kCheckWord = 3;
inline constexpr unsigned kSequenceWord = 4;  // and the next word
inline constexpr unsigned kSumWord = 14;
inline constexpr unsigned kWeightedWord = 15;

// Loads words at any address, as bytes if they are not aligned.
ONEBIT_KERNEL uint32_t LoadWord(const void* header, unsigned word) {
  const auto* bytes = static_cast<const uint8_t*>(header) + 4 * word;
  return bytes[0] | uint32_t{bytes[1]} << 8 | uint32_t{bytes[2]} << 16 | uint32_t{bytes[3]} << 24;
}
ONEBIT_KERNEL void StoreWord(uint32_t value, void* header, unsigned word) {
  auto* bytes = static_cast<uint8_t*>(header) + 4 * word;
  ONEBIT_UNROLL
  for (unsigned b = 0; b < 4; ++b) bytes[b] = static_cast<uint8_t>(value >> (8 * b));
}

ONEBIT_KERNEL Lanes<uint32_t> LoadHeader(const Warp& warp, const void* header) {
  Lanes<uint32_t> words;
  warp.ForEachLane([&](unsigned lane) {
    if (lane < kHeaderWords) words[lane] = LoadWord(header, lane);
  });
  return words;
}
ONEBIT_KERNEL void StoreHeader(const Warp& warp, const Lanes<uint32_t>& words, void* header) {
  warp.ForEachLane([&](unsigned lane) {
    if (lane < kHeaderWords) StoreWord(words[lane], header, lane);
  });
}

// Computes the check of a header, whatever its check field says.
ONEBIT_KERNEL uint32_t HeaderCheck(const Warp& warp, const Lanes<uint32_t>& words) {
  Lanes<uint32_t> values;
  Lanes<uint32_t> weighted;
  warp.ForEachLane([&](unsigned lane) {
    values[lane] = lane == kCheckWord ? 0 : words[lane];
    weighted[lane] = (lane + 1) * values[lane];
  });
  return SumOf(warp, values) ^ std::rotl(SumOf(warp, weighted), 16);
}

// Adds the values that only the device knows to the template; its check is still that of the
// template.
ONEBIT_KERNEL Lanes<uint32_t> FillIn(const Warp& warp, const HeaderTemplate& header) {
  Lanes<uint32_t> words = LoadHeader(warp, header.bytes);
  if (header.sequence != nullptr) {
    const uint64_t in_template = warp.Broadcast(words, kSequenceWord) |
                                 uint64_t{warp.Broadcast(words, kSequenceWord + 1)} << 32;
    const uint64_t sequence = in_template + *header.sequence;
    warp.ForEachLane([&](unsigned lane) {
      if (lane == kSequenceWord) words[lane] = static_cast<uint32_t>(sequence);
      if (lane == kSequenceWord + 1) words[lane] = static_cast<uint32_t>(sequence >> 32);
    });
  }
  if (header.replica_age != nullptr) {
    const uint64_t calls = *header.replica_age;
    const auto age = static_cast<uint32_t>(calls == 0 ? 0 : 1 + (calls - 1) % 255);
    warp.ForEachLane([&](unsigned lane) {
      if (lane != kFlagsWord) return;
      words[lane] = (words[lane] & ((1u << kAgeShift) - 1)) | age << kAgeShift;
    });
  }
  return words;
}

ONEBIT_KERNEL void SetCheck(const Warp& warp, Lanes<uint32_t>* words) {
  const uint32_t check = HeaderCheck(warp, *words);
  warp.ForEachLane([&](unsigned lane) {
    if (lane == kCheckWord) (*words)[lane] = check;
  });
}

template <unsigned kCalls>
ONEBIT_KERNEL void RunSeal(const Warp& warp, const SealParamsOf<kCalls>& p) {
  ForEachMessage(warp, p.list, [&](const Message& message) {
    const uint32_t* const word = message.call.faults;
    const uint32_t faults = word == nullptr ? 0 : *word;
    const uint32_t flag = faults == 0                             ? 0
                          : (faults & ~uint32_t{kNonfinite}) == 0 ? kNonfiniteFlag
                                                                  : kFailureFlag;
    Lanes<uint32_t> words = FillIn(warp, message.call.filled);
    warp.ForEachLane([&](unsigned lane) {
      if (lane == kFlagsWord) words[lane] |= flag;
      if (lane == kSumWord) words[lane] = message.checksum.sum;
      if (lane == kWeightedWord) words[lane] = message.checksum.weighted;
    });
    SetCheck(warp, &words);
    StoreHeader(warp, words, message.header);
  });
}

// Fills in the failure record, unless another warp has done so. `filled` is the expected header.
ONEBIT_KERNEL void Report(const Warp& warp, MessageFailure* failure, const Message& message,
                          FailureKind kind, Lanes<uint32_t> filled,
                          const Lanes<uint32_t>& received) {
  AddFaults(warp, message.call.faults, kind == kHasFailed ? kPeerFailed : kFailed);
  if (failure == nullptr) return;
  Lanes<bool> is_first;
  warp.Once([&] { is_first[0] = Claim(&failure->state); });
  if (!warp.Broadcast(is_first, 0)) return;
  SetCheck(warp, &filled);
  StoreHeader(warp, filled, failure->expected);
  StoreHeader(warp, received, failure->received);
  const Checksum said = {warp.Broadcast(received, kSumWord),
                         warp.Broadcast(received, kWeightedWord)};
  warp.Once([&] {
    failure->peer = message.peer;
    failure->kind = kind;
    failure->expected_checksum = said;
    failure->checksum = message.checksum;
  });
  warp.Publish([&] { StoreLast(&failure->state, 2); });
}

template <unsigned kCalls>
ONEBIT_KERNEL void RunCheck(const Warp& warp, const CheckParamsOf<kCalls>& p) {
  ForEachMessage(warp, p.list, [&](const Message& message) {
    const Lanes<uint32_t> filled = FillIn(warp, message.call.filled);
    const Lanes<uint32_t> received = LoadHeader(warp, message.header);
    const auto report = [&](FailureKind kind) {
      Report(warp, p.failure, message, kind, filled, received);
    };
    Lanes<bool> differs;
    // A rank that had a failure has not committed a call that others may have committed, so its age
    // differs.
    const uint32_t flags = warp.Broadcast(received, kFlagsWord) & (kNonfiniteFlag | kFailureFlag);
    const uint32_t flags_compared = flags != 0 ? ~(kFlagsBits | kAgeBits) : ~kFlagsBits;
    warp.ForEachLane([&](unsigned lane) {
      uint32_t compared = lane < kHeaderWords ? 0xFFFFFFFFu : 0u;
      if (lane == kFlagsWord) compared = flags_compared;
      if (lane == kCheckWord || lane == kSumWord || lane == kWeightedWord) compared = 0;
      differs[lane] = ((received[lane] ^ filled[lane]) & compared) != 0;
    });
    const bool is_damaged = HeaderCheck(warp, received) != warp.Broadcast(received, kCheckWord);
    if (warp.Ballot(differs) != 0 || is_damaged) {
      report(kHeaderDiffers);
      return;
    }
    // Both are evaluated, because all lanes take part in a broadcast.
    const Checksum& sums = message.checksum;
    const bool sum_differs = sums.sum != warp.Broadcast(received, kSumWord);
    const bool weighted_differs = sums.weighted != warp.Broadcast(received, kWeightedWord);
    if (sum_differs || weighted_differs) {
      report(kPayloadDiffers);
    } else if ((flags & kFailureFlag) != 0) {
      report(kHasFailed);
    } else if (flags != 0 && !message.call.has_verdict) {
      report(kFlagUnfit);
    } else if (flags != 0) {
      AddFaults(warp, message.call.faults, kNonfinite);
    }
  });
}

}  // namespace onebit::kernels::cuda
