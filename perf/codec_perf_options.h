// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The options of codec_perf besides the flags of Google Benchmark.
#pragma once

#include <cstddef>

namespace onebit::perf {

// Tells CTest to count a test as skipped if there is no CUDA.
inline constexpr int kExitSkipped = 77;

struct CodecPerfOptions {
  bool is_cuda = false;    // --device cuda or cuda:N
  int device = 0;          // N
  size_t megabytes = 256;  // --megabytes: of each buffer of fp32 on the device
};

inline constexpr char kCodecPerfHelp[] =
    "codec_perf [--device cpu|cuda|cuda:N]  whose kernels; cuda is cuda:0 (default cpu)\n"
    "           [--megabytes N]             of each buffer of fp32 on a CUDA device, 1 to 4096\n"
    "                                       (default 256)\n"
    "and what Google Benchmark understands:\n\n";

// Removes our options from the command line and returns them. Throws UsageError.
CodecPerfOptions TakeCodecPerfOptions(int* argc, char** argv);

}  // namespace onebit::perf
