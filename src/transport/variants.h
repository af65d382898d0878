// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Which file a transport is in. Most have one; MPI has no ABI of its own, so transport `mpi` has
// one for each MPI, of which only that of this process will do.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace onebit {

// "libonebit-transport-ucx.so". Of variants, the one whose library is in this process already; else
// the one whose launcher has started it, by its variables. No library is loaded to find out.
// kInvalidUsage when neither tells: the text names the files and what to do.
Result<std::string> PluginFile(std::string_view transport);

// "mpi" for "libonebit-transport-mpi-openmpi.so"; no value if no transport can have such a file.
std::optional<std::string> TransportOfFile(std::string_view file);

}  // namespace onebit
