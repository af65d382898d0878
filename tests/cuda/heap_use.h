// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Heap use of the library's own code, apart from that of the stand-ins that it calls.
#pragma once

#include <cstdint>
#include <string>

namespace onebit::testing {

// Counts the allocations by operator new that the calling thread makes within the scope, where the
// first file of the project on the stack is the library's or a plugin's.
class HeapUse {
 public:
  HeapUse();
  ~HeapUse();
  HeapUse(const HeapUse&) = delete;
  HeapUse& operator=(const HeapUse&) = delete;

  uint64_t count() const;
  // Where the first one was made, as far as symbols tell; "" if there was none.
  std::string first() const;
};

}  // namespace onebit::testing
