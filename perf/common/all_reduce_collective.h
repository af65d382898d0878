// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Parts that every allreduce sweep shares, whether of the library or of another system.
#pragma once

#include <algorithm>
#include <span>

#include "perf/common/bandwidth.h"
#include "perf/common/collective.h"

namespace onebit::perf {

class AllReduceCollective : public Collective {
 public:
  std::optional<onebitCollective_t> collective() const override {
    return onebitCollectiveAllReduce;
  }

  size_t CountOf(size_t bytes, onebitDataType_t type, int /*ranks*/) const override {
    return bytes / ElementBytes(type);
  }
  Shape ShapeOf(const Case& row, int /*rank*/) const override { return {row.count, row.count}; }

  double BusFactor(int ranks) const override { return AllReduceFactor(ranks); }

  // All ranks have the same result, so each measures the error of its share.
  ErrorNorm ErrorOf(const Case& row, std::span<const SeededInput> inputs, const void* output,
                    int rank) const override {
    const size_t share = (row.count + inputs.size() - 1) / inputs.size();
    const size_t begin = std::min(static_cast<size_t>(rank) * share, row.count);
    const size_t end = std::min(begin + share, row.count);
    ErrorNorm norm;
    for (size_t i = begin; i < end; ++i) {
      const double exact = ExactResult(row, inputs, i);
      const double error = ElementAt(output, row.type, i) - exact;
      norm.error += error * error;
      norm.exact += exact * exact;
    }
    return norm;
  }
};

}  // namespace onebit::perf
