// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Operation: the calls of one group on one communicator, which are one piece of work on a stream.
#pragma once

#include <memory>
#include <vector>

#include "tests/support/nccl/stand_in_comm.h"

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
  // Used instead of messages unless null. Its `inputs` contains only this rank's.
  std::shared_ptr<Collective> collective;
  void* output = nullptr;  // the collective's output
  bool is_once = true;     // not part of a graph, so it is deleted when it has run
  bool is_queued = false;
  bool is_by_host = false;  // a collective of host threads on host memory
};

}  // namespace onebit::testing::nccl
