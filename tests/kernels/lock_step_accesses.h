// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Finds unordered accesses of lanes to the same byte, from the order of a warp's barriers alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

namespace onebit::kernels::cuda {

struct LaneId {
  uint32_t warp = 0;
  uint32_t lane = 0;
};

// "lane 3 of warp 7"
std::string TextOf(const LaneId& id);

class AccessRecord {
 public:
  // Forgets the accesses of the launch before.
  void BeginLaunch() { first_period_ = next_period_; }

  // Returns a number that is larger than all before. The accesses of a warp between two barriers
  // have one number, its period.
  uint32_t NextPeriod() { return next_period_++; }

  // Returns false, with a description in *conflict, if an earlier access is not ordered before it.
  bool Add(const LaneId& by, uint32_t period, bool is_write, uintptr_t at, size_t bytes,
           std::string* conflict);

 private:
  // The last access of one kind to a byte.
  struct Access {
    uint32_t period = 0;
    uint32_t who = 0;  // a lane, or that there were others which are not ordered before it
  };
  struct Byte {
    Access write, read;
  };
  struct CachedPage {
    uintptr_t page = 0;
    Byte* bytes = nullptr;
  };
  static constexpr size_t kPageBytes = 4096;
  static constexpr size_t kCachedPages = 256;

  bool IsUnordered(const Access& access, const Access& other) const;
  Byte* PageOf(uintptr_t at);
  // Returns the byte that is in conflict, or null.
  const Byte* AddInPage(const Access& access, bool is_write, Byte* bytes, size_t count);

  uint32_t first_period_ = 1;
  uint32_t next_period_ = 1;
  std::unordered_map<uintptr_t, std::unique_ptr<Byte[]>> pages_;
  CachedPage cached_[kCachedPages];
};

}  // namespace onebit::kernels::cuda
