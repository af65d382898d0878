// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Reads the functions that a file of NCCL exports without loading it, so that none of its code
// runs. The drop-in and onebit_info compare them with those that the drop-in has.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace onebit::preload {

struct NcclExports {
  std::string version;             // "2.28.9+cuda13.0"; empty if the file does not say
  std::vector<std::string> names;  // that begin with nccl or pnccl, in order, each once
};

// Reads the content of a library. Returns why it is no NCCL, or nothing.
std::optional<std::string> ParseNcclExports(std::span<const std::byte> content,
                                            NcclExports* exports);

// Reads a file. The error does not name it.
std::optional<std::string> ReadNcclExports(const char* path, NcclExports* exports);

// Returns those of `names` that the drop-in lacks, in their order.
std::vector<std::string> MissingInDropIn(const std::vector<std::string>& names);

}  // namespace onebit::preload
