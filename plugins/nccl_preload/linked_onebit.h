// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The functions of libonebit, which is loaded with the first communicator that rules are for: this
// library is in every process that inherits LD_PRELOAD, and most of them need nothing of it.
#pragma once

#include <onebit/onebit.h>

namespace onebit::preload {

struct LinkedOnebit {
  decltype(&onebitCommInitFrom) comm_init_from = nullptr;
  decltype(&onebitCommDestroy) comm_destroy = nullptr;
  decltype(&onebitCommAbort) comm_abort = nullptr;
  decltype(&onebitCommGetAsyncError) comm_async_error = nullptr;
  decltype(&onebitCommGetStats) comm_stats = nullptr;
  decltype(&onebitCompressorCreate) compressor_create = nullptr;
  decltype(&onebitCompressorDestroy) compressor_destroy = nullptr;
  decltype(&onebitCompressorGetResidualNorm) compressor_residual_norm = nullptr;
  decltype(&onebitAllReduce) all_reduce = nullptr;
  decltype(&onebitReduceScatter) reduce_scatter = nullptr;
  decltype(&onebitAllGather) all_gather = nullptr;
  decltype(&onebitAllToAll) all_to_all = nullptr;
  decltype(&onebitSend) send = nullptr;
  decltype(&onebitRecv) recv = nullptr;
  decltype(&onebitGroupStart) group_start = nullptr;
  decltype(&onebitGroupEnd) group_end = nullptr;
  decltype(&onebitGetLastError) last_error = nullptr;

  // The library that the process has, else the one that this one is installed with, else the
  // system's; null, after a warning, if there is none. Thread-safe.
  static const LinkedOnebit* Get();
};

}  // namespace onebit::preload
