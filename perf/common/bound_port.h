// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A free TCP port of this host, which nobody else gets while this object lives.
#pragma once

#include "perf/common/child_process.h"

namespace onebit::perf {

// A program that listens with SO_REUSEADDR, as the library does, can have the port all the same.
// For others it is free once this object is gone.
class BoundPort {
 public:
  BoundPort();  // throws ToolError
  int number() const { return number_; }

 private:
  Descriptor socket_;
  int number_ = 0;
};

}  // namespace onebit::perf
