// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Blocking collectives on MPI_COMM_WORLD.
#include "perf/baselines/mpi_system.h"

#include <array>
#include <climits>
#include <cstdlib>
#include <exception>

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

MpiSystem::~MpiSystem() {
  // A rank that fails alone must not wait for the others, nor they for it.
  if (std::uncaught_exceptions() > 0) MPI_Abort(MPI_COMM_WORLD, kExitFailed);
  MPI_Finalize();
}

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
