// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// memcpy for long payloads.
#pragma once

#include <cstddef>

namespace onebit::kernels::cpu {

// Copies to memory that is not read soon, without the caches. An ordinary store first fetches its
// line, often from the cache of another core, and evicts what is in use; a whole line that goes
// straight to memory needs neither.
void CopyPastCaches(void* to, const void* from, size_t bytes);

}  // namespace onebit::kernels::cpu
