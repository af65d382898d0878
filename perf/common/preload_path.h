// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Finds the library that --preload of onebit_run puts in front of NCCL.
#pragma once

#include <string>

namespace onebit::perf {

// Returns the whole path of libonebit-nccl-preload.so, which is beside the library of this program.
// Throws ToolError.
std::string PreloadPath();

}  // namespace onebit::perf
