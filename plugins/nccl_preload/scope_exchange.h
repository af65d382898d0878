// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Tells the ranks of a communicator if the default rule holds for all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "plugins/nccl_preload/nccl_types.h"

namespace onebit::preload {

// An allreduce of NCCL's on the program's stream, which the host need not wait for: its result is
// looked at many calls later. Not thread-safe. Functions that wait end early when `is_over` says
// that the communicator has ended.
class ScopeExchange {
 public:
  // Null if no memory can be had. Called where the communicator is made: it may wait for the
  // device.
  static std::unique_ptr<ScopeExchange> Create();
  ~ScopeExchange();
  ScopeExchange(const ScopeExchange&) = delete;
  ScopeExchange& operator=(const ScopeExchange&) = delete;

  // Enqueues an exchange; the result will be true if `holds` is on all ranks. Waits only if many
  // exchanges are under way whose results were not needed.
  Result Begin(Comm native, Stream stream, bool holds, const std::function<bool()>& is_over);
  // Returns the result of the exchange that was begun last; nothing if the communicator has ended.
  // Waits if device or ranks are as many calls behind as lie between.
  std::optional<bool> Await(const std::function<bool()>& is_over) const;

 private:
  // In memory that the device reads and writes.
  struct Words {
    int32_t mine;
    int32_t result;
  };

  static constexpr size_t kSlots = 8;  // for exchanges under way

  explicit ScopeExchange(Words* slots) : slots_(slots) {}
  Words& latest() const { return slots_[begun_ % kSlots]; }

  Words* const slots_;
  size_t begun_ = 0;  // exchanges
};

}  // namespace onebit::preload
