// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What the launcher of this job says in the environment, held against what MPI says.
#pragma once

#include <cstdint>
#include <string>

namespace onebit::mpi {

// Name of the MPI this is compiled for, and of its launcher.
extern const char kMpiName[];
extern const char kLauncherName[];

// Whether some launcher that MPI understands has started this process. Without one MPI_Init would
// make it rank 0 of 1, and may start helpers of its own for that.
bool HasLauncher();

// Empty, or why `world_size` cannot be the size of the job: the launcher was another MPI's.
std::string WrongLauncher(int world_size);

// Equal for processes of one job; different for those of two, as far as the launcher tells.
uint64_t IdentityOfThisJob();

}  // namespace onebit::mpi
