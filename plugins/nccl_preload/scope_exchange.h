// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Tells the ranks of a communicator if the default rule holds for all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "plugins/nccl_preload/nccl_types.h"

namespace onebit::preload {

// An allreduce of NCCL's on the program's stream, which the host need not wait for: its result is
// looked at many calls later. Not thread-safe.
class ScopeExchange {
 public:
  // Null if no memory can be had. Called where the communicator is made: it may wait for the
  // device.
  static std::unique_ptr<ScopeExchange> Create();
  ~ScopeExchange();
  ScopeExchange(const ScopeExchange&) = delete;
  ScopeExchange& operator=(const ScopeExchange&) = delete;

  // Enqueues an exchange; the result will be true if `holds` is on all ranks. `is_over` is as for
  // Await: an exchange before this one may be under way, if its result was not needed.
  Result Begin(Comm native, Stream stream, bool holds, const std::function<bool()>& is_over);
  // Returns the result of the exchange that was begun last. Waits only if the device is as many
  // calls behind as lie between, and gives up, with false, when `is_over` says that the
  // communicator has ended.
  bool Await(const std::function<bool()>& is_over);

 private:
  // In memory that the device reads and writes.
  struct Words {
    int32_t mine;
    int32_t result;
  };

  explicit ScopeExchange(Words* words) : words_(words) {}

  Words* const words_;
};

}  // namespace onebit::preload
