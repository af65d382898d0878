// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The interface of a system that is compared with the library.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "perf/common/rank_link.h"
#include "perf/studies/baselines/exact_sum.h"

namespace onebit::perf {

// One rank of a started system.
class System : public RankLink {
 public:
  virtual std::string version() const = 0;         // name and number of the implementation
  virtual std::string_view transport() const = 0;  // in reports
  virtual std::string_view mode() const { return "dense"; }
  virtual bool is_dense() const { return true; }
  virtual size_t max_count() const = 0;  // elements of one call

  // Called before calls on tensors of `count` elements. Earlier calls are forgotten.
  virtual void Prepare(size_t /*count*/) {}
  // Forgets earlier calls on the current tensor.
  virtual void Reset() {}
  // The sum over all ranks; in place if the pointers are equal.
  virtual void AllReduce(const float* send, float* recv, size_t count) = 0;

  // A model of the calls after Prepare, and how many calls in a row are worth checking.
  virtual std::unique_ptr<Reference> MakeReference(const Case& row) const {
    return std::make_unique<ExactSum>(row);
  }
  virtual int checked_calls() const { return 1; }

  // Called last, on all ranks alike, before the process ends with this status. May end it.
  virtual void End(int /*status*/) {}
  // Called if this rank fails alone: ends the job of all ranks with this status, if the system can.
  virtual void Abort(int /*status*/) {}
};

}  // namespace onebit::perf
