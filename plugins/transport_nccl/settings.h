// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Settings of the transport, and what is known before init.
#pragma once

#include <onebit/transport.h>

#include <cstdint>
#include <string>

#include "plugins/common/base_context.h"

namespace onebit::nccl {

struct Options {
  std::string library;  // empty: looked for
  bool native_dense = false;
  bool is_blocking = true;
  uint64_t close_ms = 5000;
};

// Reads the settings by the host. onebitInvalidUsage, and a line in the log, if one does not parse.
onebitResult_t ReadOptions(const plugin::BaseContext& context, Options* options);

onebitTransportProperties PropertiesWith(const Options& options);

}  // namespace onebit::nccl
