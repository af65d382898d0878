// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// memcpy for long payloads.
#pragma once

#include <cstddef>
#include <cstring>

namespace onebit::kernels::cpu {

// Copies without the caches of the target. An ordinary store first fetches its line, often from the
// cache of another core, and evicts what is in use; a whole line that goes straight to memory needs
// neither. (Dense allreduce of 64 MiB over shared memory, 4 processes on 2 cores: 74 ms, with
// memcpy 88 ms, although the next step reads what was copied.)
#if defined(ONEBIT_WITHOUT_HIGHWAY)
inline void CopyPastCaches(void* to, const void* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}
#else
void CopyPastCaches(void* to, const void* from, size_t bytes);
#endif

}  // namespace onebit::kernels::cpu
