// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Operation: what one group does on one communicator, as one piece of work of a stream.
#pragma once

#include <memory>
#include <vector>

#include "tests/support/nccl/comm.h"

namespace onebit::testing::nccl {

struct Message {
  bool is_send = false;
  int peer = 0;
  void* buffer = nullptr;
  size_t bytes = 0;
};

struct Operation {
  std::shared_ptr<Comm> comm;
  CUstream_st* stream = nullptr;
  std::vector<Message> messages;
  // Instead of messages, if it is not null: its `inputs` has this rank's alone.
  std::shared_ptr<Collective> collective;
  void* output = nullptr;  // of the collective
  bool is_once = true;     // not in a graph: gone when it has run
  bool is_queued = false;
};

}  // namespace onebit::testing::nccl
