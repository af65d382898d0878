// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Reads the options that a program attaches to a single call: those of onebit/nccl_ext.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plugins/nccl_preload/call_rules.h"
#include "plugins/nccl_preload/nccl_types.h"

namespace onebit::preload {

// Equal on all ranks of a call, which the program sees to.
struct CallOptions {
  std::optional<uint64_t> tensor;          // the program's own number for the tensor
  std::optional<Compression> compression;  // replaces that of the rules; never kOff
  bool is_off = false;                     // NCCL makes the call
  // False if the configuration asks for what only NCCL's own kernels can do, or is none of NCCL's.
  bool is_plain = true;
};

// Reads the configuration of a call of `operation`. An error is a text that says which option of
// this library is wrong; `options` is then unchanged.
std::optional<std::string> ReadCallOptions(const CollConfig& config, Operation operation,
                                           CallOptions* options);

}  // namespace onebit::preload
