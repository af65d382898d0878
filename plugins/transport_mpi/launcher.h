// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Compares the launcher's environment variables with what MPI reports.
#pragma once

#include <cstdint>
#include <string>

namespace onebit::mpi {

// Names of the MPI this is compiled for, and of its launcher.
extern const char kMpiName[];
extern const char kLauncherName[];

// True if a launcher that MPI understands has started this process. Without one MPI_Init would make
// it rank 0 of 1, and may start helper processes for that.
bool HasLauncher();

// Empty, or why `world_size` cannot be the size of the job: the launcher belongs to another MPI.
std::string WrongLauncher(int world_size);

// Equal for processes of one job; different for different jobs, as far as the launcher tells.
uint64_t IdentityOfThisJob();

}  // namespace onebit::mpi
