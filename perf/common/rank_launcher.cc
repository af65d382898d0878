// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sets up environment, rendezvous and streams of the ranks, and leaves the rest to the supervisor.
#include "perf/common/rank_launcher.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "perf/common/child_process.h"
#include "perf/common/job_guard.h"
#include "perf/common/job_supervisor.h"
#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

constexpr char kRendezvous[] = "ONEBIT_RENDEZVOUS";
// The ranks meet there if they call init_process_group of PyTorch.
constexpr char kMasterAddress[] = "MASTER_ADDR";
constexpr char kMasterPort[] = "MASTER_PORT";

// Variables that tell a process its rank. Our ranks must not inherit those of another launcher.
constexpr std::array<std::string_view, 10> kRankVariables = {"RANK",
                                                             "WORLD_SIZE",
                                                             "LOCAL_RANK",
                                                             "LOCAL_WORLD_SIZE",
                                                             "OMPI_COMM_WORLD_RANK",
                                                             "OMPI_COMM_WORLD_SIZE",
                                                             "OMPI_COMM_WORLD_LOCAL_RANK",
                                                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                                                             "PMI_RANK",
                                                             "PMI_SIZE"};

// A private folder, removed at the end.
class PrivateFolder {
 public:
  PrivateFolder() {
    const char* parent = std::getenv("TMPDIR");
    path_ = fmt::format("{}/onebit_run-XXXXXX", parent != nullptr ? parent : "/tmp");
    if (mkdtemp(path_.data()) == nullptr) {  // with mode 0700
      throw ToolError(
          fmt::format("cannot make a folder for the ranks to meet, {}: {}", path_, ErrnoText()));
    }
  }
  ~PrivateFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The input of rank 0. A terminal cannot be read from another process group, so it is relayed.
Descriptor InputOfFirstRank(Supervisor* supervisor) {
  if (isatty(STDIN_FILENO) != 1) return Descriptor();
  Pipe pipe = MakePipe();
  supervisor->Relay(InputRelay(STDIN_FILENO, std::move(pipe.write)));
  return std::move(pipe.read);
}

// If a standard stream was closed at our start, the next file to be opened would get its number and
// receive what is meant for the stream. A placeholder prevents that. Reading and writing fail as
// before, and the ranks find the stream closed.
void OccupyStandardStreams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    // open() returns the lowest free number, which is this one.
    Descriptor(open("/dev/null", (stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC))
        .Release();
  }
}

// Makes the loader open `library` before those that LD_PRELOAD names already.
void Preload(const std::string& library, std::vector<std::string>* environment) {
  constexpr std::string_view kName = "LD_PRELOAD=";
  for (std::string& variable : *environment) {
    if (!variable.starts_with(kName)) continue;
    const std::string others = variable.substr(kName.size());
    variable = fmt::format("{}{}{}{}", kName, library, others.empty() ? "" : ":", others);
    return;
  }
  environment->push_back(fmt::format("{}{}", kName, library));
}

void StartRank(const LaunchOptions& options, int rank, const std::string& rendezvous,
               int master_port, Supervisor* supervisor, const JobGuard& guard) {
  Descriptor input, output, error;
  if (rank == 0) {
    input = InputOfFirstRank(supervisor);
  } else {
    input = Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  if (options.is_output_tagged) {
    const std::string tag = fmt::format("[{}] ", rank);
    Pipe output_pipe = MakePipe();
    Pipe error_pipe = MakePipe();
    supervisor->RelayOutput(std::move(output_pipe.read), tag);
    supervisor->RelayError(std::move(error_pipe.read), tag);
    output = std::move(output_pipe.write);
    error = std::move(error_pipe.write);
  }
  std::vector<std::string> environment =
      RankEnvironment(rank, options.processes, rendezvous, master_port);
  if (!options.preload.empty()) Preload(options.preload, &environment);
  const pid_t child = StartChild({.program = options.program,
                                  .arguments = options.arguments,
                                  .environment = std::move(environment),
                                  .standard_input = input.number(),
                                  .standard_output = output.number(),
                                  .standard_error = error.number(),
                                  .announcement = guard.groups()});
  supervisor->Add(child, rank == options.expendable_rank);
}

// A TCP port of the loopback device that nobody uses now. Rank 0 opens it a moment later, and
// PyTorch says so if somebody was faster.
int FreePort() {
  const int socket_number = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const bool is_found = socket_number >= 0 && bind(socket_number, any, bytes) == 0 &&
                        getsockname(socket_number, any, &bytes) == 0;
  const std::string text = is_found ? "" : ErrnoText();
  if (socket_number >= 0) close(socket_number);
  if (!is_found) throw ToolError("cannot find a free port for the ranks to meet: " + text);
  return ntohs(address.sin_port);
}

}  // namespace

int Launch(const LaunchOptions& options) {
  OccupyStandardStreams();
  SignalGate signals;
  std::optional<PrivateFolder> folder;  // outlives the supervisor, which ends all who use it
  std::string rendezvous;
  // A launched rank's own rendezvous belongs to its job, so the new ranks need another one.
  if (std::getenv(kRendezvous) == nullptr || LaunchedRank()) {
    rendezvous = folder.emplace().path() + "/rendezvous";
  }
  const bool has_place =
      std::getenv(kMasterAddress) != nullptr || std::getenv(kMasterPort) != nullptr;
  const int master_port = has_place && !LaunchedRank() ? 0 : FreePort();
  JobGuard guard(folder ? folder->path() : "");
  Supervisor supervisor(signals, options.tool, options.grace_seconds);
  for (int rank = 0; rank < options.processes; ++rank) {
    StartRank(options, rank, rendezvous, master_port, &supervisor, guard);
  }
  return supervisor.Wait();
}

std::vector<std::string> RankEnvironment(int rank, int ranks, const std::string& rendezvous,
                                         int master_port) {
  std::vector<std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    if (std::find(kRankVariables.begin(), kRankVariables.end(), name) != kRankVariables.end()) {
      continue;
    }
    if (name == kRendezvous && !rendezvous.empty()) continue;
    if ((name == kMasterAddress || name == kMasterPort) && master_port != 0) continue;
    variables.emplace_back(text);
  }
  variables.push_back(fmt::format("RANK={}", rank));
  variables.push_back(fmt::format("WORLD_SIZE={}", ranks));
  variables.push_back(fmt::format("LOCAL_RANK={}", rank));
  variables.push_back(fmt::format("LOCAL_WORLD_SIZE={}", ranks));
  if (!rendezvous.empty()) variables.push_back(fmt::format("{}={}", kRendezvous, rendezvous));
  if (master_port != 0) {
    variables.push_back(fmt::format("{}=127.0.0.1", kMasterAddress));
    variables.push_back(fmt::format("{}={}", kMasterPort, master_port));
  }
  return variables;
}

std::optional<int> LaunchedRank() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    if (std::string_view(name) == "SLURM_PROCID" &&
        std::getenv("SLURM_STEP_NUM_TASKS") == nullptr) {
      continue;
    }
    int rank = 0;  // the library says what is wrong with a text that is no number
    const std::string_view digits(text);
    std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    return rank;
  }
  return std::nullopt;
}

}  // namespace onebit::perf
