// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Checks of arguments for the functions that export states of compressors, syncs and optimizers.
#pragma once

#include <cstddef>
#include <cstring>

#include "base/status.h"

namespace onebit {

// True if an onebitStateKind_t is onebitStateGlobal. A caller in C may pass any number, which C++
// must not load as an enumeration.
template <typename ApiKind>
Result<bool> IsGlobalKind(const ApiKind& kind) {
  int value;
  static_assert(sizeof(value) == sizeof(kind));
  std::memcpy(&value, &kind, sizeof(value));
  if (value == 0 || value == 1) return value == 1;
  return Error(Code::kInvalidArgument,
               "state kind {} is unknown: use onebitStateRank or onebitStateGlobal", value);
}

// Checks that `*bytes` are enough for `needed`, which it becomes. A null buffer asks for the size.
inline Status CheckRoom(const char* what, size_t needed, const void* buffer, size_t* bytes) {
  const size_t room = buffer == nullptr ? needed : *bytes;
  *bytes = needed;
  if (room >= needed) return OkStatus();
  return Error(Code::kInvalidArgument, "the state of the {} takes {} bytes, but *bytes is {}", what,
               needed, room);
}

}  // namespace onebit
