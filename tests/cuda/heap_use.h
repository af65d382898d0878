// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Heap use of the library's own code, without that of the stand-ins that it calls.
#pragma once

#include <cstdint>
#include <string>

namespace onebit::testing {

// Counts allocations by operator new of the calling thread within the scope, if the innermost file
// of this project on the stack belongs to the library or a plugin.
class HeapUse {
 public:
  HeapUse();
  ~HeapUse();
  HeapUse(const HeapUse&) = delete;
  HeapUse& operator=(const HeapUse&) = delete;

  uint64_t count() const;
  // The place of the first one, as far as symbols tell; "" if there was none.
  std::string first() const;
};

}  // namespace onebit::testing
