// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/common/frame_transport.h"

#include <algorithm>

#include "plugins/common/wire.h"

namespace onebit::plugin {
namespace {

// Limit for early payloads of all peers of one endpoint; the memory is touched when first used.
constexpr size_t kMostEarlyMemory = 64u << 20;

}  // namespace

size_t EarlyBytes(size_t most, size_t ranks) {
  return std::min(most, kMostEarlyMemory / kWindow / ranks);
}

}  // namespace onebit::plugin
