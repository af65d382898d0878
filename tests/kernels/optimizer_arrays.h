// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Arrays of an optimizer: between guard pages while a kernel changes them, then read back.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/reference/elements.h"
#include "kernels/types.h"
#include "tests/kernels/guarded_memory.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {

// Memory for one array at a time, enough for every count of OptimizerCounts().
class GuardedArray {
 public:
  template <class T>
  T* Place(const std::vector<T>& content, Edge edge) {
    T* at = memory_.Place(content, edge);
    at_ = reinterpret_cast<uint8_t*>(at);
    bytes_ = content.size() * sizeof(T);
    return at;
  }

  // Reads the array, with one pattern for every NaN, because processor and compiler choose which
  // payload an operation keeps.
  Bytes Read(DataType type = DataType::kF32) const {
    Bytes content(at_, at_ + bytes_);
    for (size_t i = 0; i < bytes_ / BytesOf(type); ++i) {
      if (std::isnan(reference::LoadElement(content.data(), type, i))) {
        memset(content.data() + i * BytesOf(type), 0xFF, BytesOf(type));
      }
    }
    return content;
  }

 private:
  GuardedMemory memory_{size_t{1} << 17};
  uint8_t* at_ = nullptr;
  size_t bytes_ = 0;
};

// Random second moments, none negative.
inline Bytes RandomVariance(Numbers numbers, size_t count, Random& random) {
  Bytes bytes = RandomElements(DataType::kF32, numbers, count, random);
  auto* v = reinterpret_cast<float*>(bytes.data());
  for (size_t i = 0; i < count; ++i) v[i] = std::abs(v[i]);
  return bytes;
}

// Makes a few elements infinite or NaN.
inline void AddNonfinite(DataType type, Bytes& elements, Random& random) {
  const size_t count = elements.size() / BytesOf(type);
  for (size_t i = random() % 32; i < count; i += 1 + random() % 64) {
    const float bad = random() % 2 == 0 ? std::numeric_limits<float>::infinity()
                                        : std::numeric_limits<float>::quiet_NaN();
    reference::StoreElement(random() % 2 == 0 ? bad : -bad, type, i, elements.data());
  }
}

// Floors of blocks for `count` elements; in half of the cases none.
inline std::vector<float> RandomFloors(size_t count, Random& random) {
  std::vector<float> floors;
  if (random() % 2 == 0) return floors;
  for (size_t block = 0; block <= count / kTensorSumBlock; ++block) {
    floors.push_back(0.1f * static_cast<float>(random() % 8));
  }
  return floors;
}

// Counts with every kind of tail, and around the edges of tiles.
inline std::vector<size_t> OptimizerCounts() {
  std::vector<size_t> counts = ShortCounts();
  for (const size_t count : CountsAround(kTensorSumBlock)) counts.push_back(count);
  return counts;
}

}  // namespace onebit::kernels
