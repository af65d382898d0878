// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Rules for -t, --procs and --transport, and the start of this program as ranks.
#include "perf/common/procs.h"

#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include "perf/common/rank_launcher.h"
#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

constexpr char kOfThreads[] = "local";
constexpr char kOfProcesses[] = "socket";
constexpr char kOfMpi[] = "mpi";

// Removes --procs from argv. CLI11 accepts it as two words or as one.
std::vector<std::string> WithoutProcs(int argc, const char* const* argv) {
  std::vector<std::string> rest;
  for (int i = 0; i < argc; ++i) {
    const std::string_view argument(argv[i]);
    if (argument.starts_with("--procs=")) continue;
    if (argument == "--procs") {
      ++i;
      continue;
    }
    rest.emplace_back(argument);
  }
  return rest;
}

}  // namespace

std::string ProblemWith(const RankSource& source, const char* set_transport) {
  const bool has_processes = source.procs > 0 || source.is_one_rank();
  if (source.procs > 0 && source.is_one_rank()) {
    return fmt::format(
        "--procs starts ranks, but a launcher has already started this process as rank {}: leave "
        "out --procs",
        *source.launched_rank);
  }
  if (TransportOf(source, set_transport) == kTransportOfDevices && !source.has_cuda) {
    return "transport nccl connects CUDA devices, but the buffers are host memory: add --device "
           "cuda where the program has it, or use another transport";
  }
  const char* const who = source.procs > 0 ? "--procs" : "the launcher";
  if (has_processes && source.is_threads_given && source.threads > 1) {
    return fmt::format(
        "-t {} makes ranks of threads, but with {} every process is one rank: leave out -t",
        source.threads, who);
  }
  if (source.procs > 0 && TransportOf(source, set_transport) == kOfMpi) {
    return fmt::format(
        "--procs starts processes that MPI does not know of: for transport mpi start this program "
        "with mpirun -np {}, and leave out --procs",
        source.procs);
  }
  if (!has_processes && source.transport == kOfMpi) {
    return "--transport mpi connects processes that a launcher of MPI has started, and none has "
           "started this one: use mpirun -np N";
  }
  if (has_processes && source.transport == kOfThreads) {
    return fmt::format(
        "--transport local connects the threads of one process, but with {} every rank is a "
        "process: leave out --transport, or use socket",
        who);
  }
  if (!has_processes && !source.transport.empty() && source.transport != kOfThreads &&
      source.transport != kTransportOfDevices) {
    return fmt::format(
        "--transport {} connects processes, and there is only this one: start some with --procs N "
        "or onebit_run; for threads (-t) it is local",
        source.transport);
  }
  const bool is_variable_read = has_processes || source.transport == kTransportOfDevices;
  if (is_variable_read && set_transport != nullptr && !source.transport.empty() &&
      source.transport != set_transport) {
    return fmt::format("--transport is {}, but ONEBIT_TRANSPORT is {} and overrides it: unset it",
                       source.transport, set_transport);
  }
  return "";
}

void RequireRanks(const RankSource& source) {
  if (source.is_threads_given || source.procs > 0 || source.is_one_rank()) return;
  throw UsageError(
      "there are no ranks to measure: -t 4 makes four threads of this process, --procs 4 four "
      "processes on this host; onebit_run, torchrun, mpirun and srun start processes on several "
      "hosts. (-t 1 is one rank alone.)");
}

std::string TransportOf(const RankSource& source, const char* set_transport) {
  if (source.procs == 0 && !source.is_one_rank()) {
    return source.transport == kTransportOfDevices ? kTransportOfDevices : kOfThreads;
  }
  if (!source.transport.empty()) return source.transport;
  return set_transport != nullptr ? set_transport : kOfProcesses;
}

std::string CheckedTransportOf(const RankSource& source) {
  const char* const set_transport = std::getenv("ONEBIT_TRANSPORT");
  const std::string problem = ProblemWith(source, set_transport);
  if (!problem.empty()) throw UsageError(problem);
  return TransportOf(source, set_transport);
}

int LaunchSelf(std::string_view tool, int procs, int argc, const char* const* argv,
               std::optional<int> expendable_rank) {
  LaunchOptions options;
  options.tool = tool;
  options.processes = procs;
  options.program = "/proc/self/exe";  // argv[0] may be relative, or a name that PATH finds
  options.arguments = WithoutProcs(argc, argv);
  options.expendable_rank = expendable_rank;
  return Launch(options);
}

onebitResult_t JoinProcesses(const std::string& transport, onebitComm_t* comm) {
  onebitConfig_t config = ONEBIT_CONFIG_INIT;
  config.transport = transport.c_str();
  return onebitCommInitEnv(comm, &config);
}

}  // namespace onebit::perf
