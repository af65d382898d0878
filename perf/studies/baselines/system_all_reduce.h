// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The allreduce of a system as a collective of the sweep driver.
#pragma once

#include <memory>
#include <string_view>

#include "perf/common/all_reduce_collective.h"
#include "perf/studies/baselines/system.h"

namespace onebit::perf {

class SystemAllReduce : public AllReduceCollective {
 public:
  // The system is borrowed.
  SystemAllReduce(std::string_view tool, System& system) : tool_(tool), system_(system) {}

  std::string_view tool() const override { return tool_; }
  const char* call() const override { return "AllReduce"; }

  void Prepare(const Case& row, const Options&, RankState&) const override {
    system_.Prepare(row.count);
  }
  void Reset(RankState&) const override { system_.Reset(); }

  // A call that fails throws.
  onebitResult_t Run(const Case& row, const RankCall& call) const override {
    system_.AllReduce(static_cast<const float*>(call.send), static_cast<float*>(call.recv),
                      row.count);
    return onebitSuccess;
  }

  std::unique_ptr<Reference> MakeReference(const Case& row, const Options&) const override {
    return system_.MakeReference(row);
  }
  int CheckedCalls(const Options&) const override { return system_.checked_calls(); }
  void FillChecked(void* values, size_t count, onebitDataType_t, uint64_t seed,
                   int rank) const override {
    FillExact(static_cast<float*>(values), count, seed, rank);
  }

 private:
  const std::string_view tool_;
  System& system_;
};

}  // namespace onebit::perf
