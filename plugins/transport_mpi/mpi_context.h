// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Context: the state that the endpoints of a process share.
#pragma once

#include <onebit/transport.h>

#include <memory>

#include "plugins/common/base_context.h"
#include "plugins/transport_mpi/mpi_settings.h"

namespace onebit::mpi {

class MpiFrameTransport;

// Created by init, destroyed by finalize. Thread-safe.
class Context : public plugin::BaseContext {
 public:
  // Starts MPI. Logs the cause of an error.
  static onebitResult_t Create(const onebitTransportHost& host, std::unique_ptr<Context>* context);
  // `context` is null before init.
  static onebitTransportProperties Properties(const Context* context);
  // Throws std::bad_alloc.
  onebitResult_t Open(const onebitTransportCommInfo& info,
                      std::unique_ptr<MpiFrameTransport>* frames);

  const Options& options() const { return options_; }
  uint64_t machine() const { return machine_; }

 private:
  explicit Context(const onebitTransportHost& host);

  const uint64_t machine_;
  const Options options_;
};

}  // namespace onebit::mpi
