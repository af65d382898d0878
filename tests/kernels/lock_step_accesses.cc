// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/lock_step_accesses.h"

#include <algorithm>

namespace onebit::kernels::cuda {
namespace {

// A lane as a number: the warp, and in the lowest byte the lane.
constexpr uint32_t kSeveralWarps = ~0u;
constexpr uint32_t kSeveralLanes = 0x80;

uint32_t WarpOf(uint32_t who) { return who >> 8; }

std::string NameOf(uint32_t who) {
  if (who == kSeveralWarps) return "several warps";
  if ((who & 0xFF) == kSeveralLanes) return "several lanes of warp " + std::to_string(WarpOf(who));
  return TextOf({WarpOf(who), who & 0xFF});
}

}  // namespace

std::string TextOf(const LaneId& id) {
  return "lane " + std::to_string(id.lane) + " of warp " + std::to_string(id.warp);
}

// Nothing orders accesses of different warps within a launch; a barrier orders those of a warp.
inline bool AccessRecord::IsUnordered(const Access& access, const Access& other) const {
  if (other.period < first_period_ || other.who == access.who) return false;
  return WarpOf(other.who) != WarpOf(access.who) || other.period == access.period;
}

inline AccessRecord::Byte* AccessRecord::PageOf(uintptr_t at) {
  const uintptr_t page = at / kPageBytes;
  CachedPage& cached = cached_[page % kCachedPages];
  if (cached.bytes == nullptr || cached.page != page) {
    std::unique_ptr<Byte[]>& bytes = pages_[page];
    if (bytes == nullptr) bytes = std::make_unique<Byte[]>(kPageBytes);
    cached = {page, bytes.get()};
  }
  return cached.bytes;
}

const AccessRecord::Byte* AccessRecord::AddInPage(const Access& access, bool is_write, Byte* bytes,
                                                  size_t count) {
  for (Byte* byte = bytes; byte != bytes + count; ++byte) {
    const bool follows_read = IsUnordered(access, byte->read);
    if (IsUnordered(access, byte->write) || (is_write && follows_read)) return byte;
    if (is_write) {
      byte->write = access;
    } else if (!follows_read) {
      byte->read = access;
    } else if (WarpOf(byte->read.who) == WarpOf(access.who)) {
      byte->read.who = WarpOf(access.who) << 8 | kSeveralLanes;
    } else {
      byte->read.who = kSeveralWarps;
    }
  }
  return nullptr;
}

bool AccessRecord::Add(const LaneId& by, uint32_t period, bool is_write, uintptr_t at, size_t bytes,
                       std::string* conflict) {
  const Access access = {period, by.warp << 8 | by.lane};
  const size_t in_page = std::min(bytes, kPageBytes - at % kPageBytes);
  const Byte* const byte = AddInPage(access, is_write, PageOf(at) + at % kPageBytes, in_page);
  if (byte == nullptr) {
    return in_page == bytes || Add(by, period, is_write, at + in_page, bytes - in_page, conflict);
  }
  const bool follows_write = IsUnordered(access, byte->write);
  *conflict = "race: " + NameOf(access.who) + (is_write ? " writes" : " reads") + " a byte that " +
              NameOf(follows_write ? byte->write.who : byte->read.who) +
              (follows_write ? " wrote" : " read") + ", and nothing orders the two";
  return false;
}

}  // namespace onebit::kernels::cuda
