// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Blocking collectives on MPI_COMM_WORLD.
#include "perf/studies/baselines/mpi_system.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <mpi.h>

#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

// Variables in which MPI launchers tell the number of ranks.
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

// MPICH 4.0 over TCP usually hangs in MPI_Finalize: a rank asks all others for an acknowledgement,
// and a rank that has its own no longer answers. If each rank has a host of its own, the launcher
// accepts a process that leaves without it. On a shared host it would kill the ranks that are a
// little later. Where all share one host, they talk through shared memory, and MPI_Finalize ends;
// with several ranks on each of several hosts it may hang, and whoever started them must end them.
void MpiSystem::End([[maybe_unused]] int status) {
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

void MpiSystem::Broadcast(std::span<std::byte> bytes, int root) {
  while (!bytes.empty()) {
    const size_t part = std::min<size_t>(bytes.size(), INT_MAX);  // MPI counts in ints
    MPI_Bcast(bytes.data(), static_cast<int>(part), MPI_BYTE, root, MPI_COMM_WORLD);
    bytes = bytes.subspan(part);
  }
}

}  // namespace onebit::perf
