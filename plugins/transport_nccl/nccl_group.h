// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Group: ranks of an application's NCCL communicator.
#pragma once

#include <onebit/transport.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "plugins/transport_nccl/communicator.h"
#include "plugins/transport_nccl/nccl_context.h"

namespace onebit::nccl {

struct Group {
  Context* context = nullptr;
  std::shared_ptr<Communicator> communicator;
};

// `native` points to an ncclComm_t. Throws std::bad_alloc.
onebitResult_t Adopt(Context* context, const void* native, size_t native_bytes, uint64_t timeout_ms,
                     std::shared_ptr<Group>* group);
onebitResult_t Broadcast(Group* group, void* bytes, size_t count, uint64_t timeout_ms);

}  // namespace onebit::nccl
