// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What a sweep needs of the system it measures: a sum over ranks, and a little talk between them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "perf/baselines/expectation.h"

namespace onebit::perf {

// One rank of a system that has been started. All ranks call the same functions in the same order.
// Functions throw ToolError, or end the job as the system does it.
class System {
 public:
  virtual ~System() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual std::string version() const = 0;         // name and number of the implementation
  virtual std::string_view transport() const = 0;  // in reports
  virtual std::string_view mode() const { return "dense"; }
  virtual bool is_dense() const { return true; }
  virtual size_t max_count() const = 0;  // elements of one call

  // Called before calls on tensors of `count` elements; what earlier calls left is forgotten.
  virtual void Prepare(size_t /*count*/) {}
  // The sum over all ranks; in place where the pointers are equal.
  virtual void AllReduce(const float* send, float* recv, size_t count) = 0;
  // What the next calls after Prepare must give.
  virtual std::unique_ptr<Expectation> Expect(size_t count) const {
    return std::make_unique<ExactSum>(count);
  }

  // The last call, on all ranks alike; the process is about to end with this status. May end it.
  virtual void Finish(int /*status*/) {}
  // This rank fails alone: where the system can, ends the job of all of them with this status.
  virtual void Abort(int /*status*/) {}

  virtual void Barrier() = 0;
  // `all` has room for the `bytes` of every rank, by rank.
  virtual void AllGather(const void* mine, void* all, size_t bytes) = 0;

  // The record of every rank, by rank, on every rank.
  template <class Record>
  std::vector<Record> Gather(const Record& mine) {
    static_assert(std::is_trivially_copyable_v<Record>);
    std::vector<Record> records(static_cast<size_t>(ranks()));
    AllGather(&mine, records.data(), sizeof(Record));
    return records;
  }
};

}  // namespace onebit::perf
