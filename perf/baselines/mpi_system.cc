// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Blocking collectives on MPI_COMM_WORLD.
#include "perf/baselines/mpi_system.h"

#include <unistd.h>

#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <mpi.h>

#include "perf/common/error.h"

namespace onebit::perf {
namespace {

// What launchers of MPI tell their processes.
constexpr std::array<const char*, 2> kSizeVariables = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};

void CheckLauncher(int ranks) {
  for (const char* name : kSizeVariables) {
    const char* text = std::getenv(name);
    if (text == nullptr || std::atoi(text) == ranks) continue;
    throw ToolError(
        fmt::format("{} is {}, but MPI sees {} rank(s): another MPI's mpirun has started this "
                    "program (it needs that of {})",
                    name, text, ranks,
#if defined(OPEN_MPI)
                    "Open MPI, mpirun.openmpi"));
#else
                    "MPICH, mpirun.mpich"));
#endif
  }
}

}  // namespace

MpiSystem::MpiSystem() {
  MPI_Init(nullptr, nullptr);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  try {
    CheckLauncher(ranks_);
  } catch (...) {
    MPI_Finalize();
    throw;
  }
}

MpiSystem::~MpiSystem() { MPI_Finalize(); }

// MPICH 4.0 over TCP hangs in MPI_Finalize more often than not: a rank there asks all others for an
// acknowledgement, and one that has its own no longer answers. Leaving without it is a success to
// the launcher where each rank has a host of its own. Of ranks that share a host it kills those
// that are a little later, but they talk through shared memory, and MPI_Finalize ends.
void MpiSystem::Finish([[maybe_unused]] int status) {
#if !defined(OPEN_MPI)
  MPI_Comm neighbours = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &neighbours);
  int is_shared = 0;
  MPI_Comm_size(neighbours, &is_shared);
  is_shared = is_shared > 1 ? 1 : 0;
  int is_any_shared = 0;
  MPI_Allreduce(&is_shared, &is_any_shared, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (is_any_shared != 0) return;
  MPI_Barrier(MPI_COMM_WORLD);
  std::fflush(nullptr);
  _exit(status);
#endif
}

void MpiSystem::Abort(int status) { MPI_Abort(MPI_COMM_WORLD, status); }

std::string MpiSystem::version() const {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  // Open MPI: "Open MPI v4.1.4, package: ..."; MPICH: "MPICH Version:\t4.0.2\nMPICH Release date:
  // ...".
  std::string line(text.data(), static_cast<size_t>(length));
  line.resize(line.find_first_of(",\n") == line.npos ? line.size() : line.find_first_of(",\n"));
  for (char& letter : line) {
    if (letter == '\t') letter = ' ';
  }
  return line;
}

std::string_view MpiSystem::transport() const {
#if defined(OPEN_MPI)
  return "openmpi";
#else
  return "mpich";
#endif
}

size_t MpiSystem::max_count() const { return INT_MAX; }

void MpiSystem::AllReduce(const float* send, float* recv, size_t count) {
  MPI_Allreduce(send == recv ? MPI_IN_PLACE : send, recv, static_cast<int>(count), MPI_FLOAT,
                MPI_SUM, MPI_COMM_WORLD);
}

void MpiSystem::Barrier() { MPI_Barrier(MPI_COMM_WORLD); }

void MpiSystem::AllGather(const void* mine, void* all, size_t bytes) {
  MPI_Allgather(mine, static_cast<int>(bytes), MPI_BYTE, all, static_cast<int>(bytes), MPI_BYTE,
                MPI_COMM_WORLD);
}

void MpiSystem::AllToAll(const void* send, void* recv, size_t bytes) {
  MPI_Alltoall(send, static_cast<int>(bytes), MPI_BYTE, recv, static_cast<int>(bytes), MPI_BYTE,
               MPI_COMM_WORLD);
}

}  // namespace onebit::perf
