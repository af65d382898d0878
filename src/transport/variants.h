// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The file that holds a transport. MPI has no ABI of its own, so transport `mpi` has one file for
// each implementation, and only the one of this process works. Other transports have a single file.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace onebit {

// "libonebit-transport-ucx.so" for "ucx". If the transport has several files, chooses the one whose
// MPI this process has loaded, else the one whose launcher has set its variables. Loads no library.
// The error, kInvalidUsage, means that neither decides; its text names the files and what to do.
Result<std::string> PluginFile(std::string_view transport);

// "mpi" for "libonebit-transport-mpi-openmpi.so"; none if no transport can have such a file.
std::optional<std::string> TransportOfFile(std::string_view file);

}  // namespace onebit
