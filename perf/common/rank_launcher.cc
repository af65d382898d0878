// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sets up environment, rendezvous and streams of the ranks, and leaves the rest to the supervisor.
#include "perf/common/rank_launcher.h"

#include <fcntl.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include <fmt/format.h>

#include "perf/common/bound_port.h"
#include "perf/common/child_process.h"
#include "perf/common/job_guard.h"
#include "perf/common/job_supervisor.h"
#include "perf/common/local_ranks.h"
#include "perf/common/private_folder.h"
#include "perf/common/rank_environment.h"

namespace onebit::perf {
namespace {

// The input of rank 0. A terminal cannot be read from another process group, so it is relayed.
Descriptor InputOfFirstRank(Supervisor* supervisor) {
  if (isatty(STDIN_FILENO) != 1) return Descriptor();
  Pipe pipe = MakePipe();
  supervisor->Relay(InputRelay(STDIN_FILENO, std::move(pipe.write)));
  return std::move(pipe.read);
}

pid_t StartRank(const LaunchOptions& options, const RankPlace& place, Supervisor* supervisor,
                const JobGuard& guard) {
  Descriptor input, output, error;
  if (place.rank == 0) {
    input = InputOfFirstRank(supervisor);
  } else {
    input = Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  if (options.is_output_tagged) {
    const std::string tag = fmt::format("[{}] ", place.rank);
    Pipe output_pipe = MakePipe();
    Pipe error_pipe = MakePipe();
    supervisor->RelayOutput(std::move(output_pipe.read), tag);
    supervisor->RelayError(std::move(error_pipe.read), tag);
    output = std::move(output_pipe.write);
    error = std::move(error_pipe.write);
  }
  return StartChild({.program = options.program,
                     .arguments = options.arguments,
                     .environment = RankEnvironment(place),
                     .standard_input = input.number(),
                     .standard_output = output.number(),
                     .standard_error = error.number(),
                     .announcement = guard.groups()});
}

}  // namespace

int Launch(const LaunchOptions& options) {
  OccupyStandardStreams();
  SignalGate signals;
  std::optional<PrivateFolder> folder;  // outlives the supervisor, which ends all who use it
  RankPlace place;
  place.ranks = place.local_ranks = options.processes;
  place.preload = options.preload;
  if (!IsSetByUser(kRendezvousVariable)) {
    place.rendezvous = folder.emplace().path() + "/rendezvous";
  }
  if (!IsSetByUser(kJobVariable)) place.job = NewJobWord();
  if (!IsSetByUser(kMasterAddressVariable) && !IsSetByUser(kMasterPortVariable)) {
    // Rank 0 opens it a moment later, and PyTorch says so if somebody was faster.
    place.master_port = BoundPort().number();
  }
  JobGuard guard(folder ? folder->path() : "");
  Supervisor supervisor(signals, options.tool, options.grace_seconds);
  auto owned = std::make_unique<LocalRanks>();
  LocalRanks& ranks = *owned;
  supervisor.Add(std::move(owned));
  for (int rank = 0; rank < options.processes; ++rank) {
    place.rank = place.local_rank = rank;
    ranks.Add(StartRank(options, place, &supervisor, guard), rank == options.expendable_rank);
  }
  return supervisor.Wait();
}

}  // namespace onebit::perf
