// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The arguments of a call that moves data.
#pragma once

#include "plugins/nccl_preload/call_facts.h"
#include "plugins/nccl_preload/nccl_types.h"

namespace onebit::preload {

struct DataCall {
  const void* send = nullptr;  // null in a receive
  void* recv = nullptr;        // null in a send
  CallFacts facts;
  Stream stream = nullptr;
  int peer = -1;                       // of sends and receives
  const CollConfig* config = nullptr;  // null: the plain form of the call
};

}  // namespace onebit::preload
