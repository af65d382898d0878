// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// onebit_run -n N PROGRAM ...: runs the ranks of a job on this host, or with --hosts on several.
// Exit status: that of the first rank that failed; 1 if a host cannot be reached or is lost, 2 for
// bad usage, 126 if PROGRAM cannot be executed, 127 if it does not exist.
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "perf/common/flag_kinds.h"
#include "perf/common/preload_path.h"
#include "perf/common/rank_launcher.h"
#include "perf/common/tool_error.h"
#include "perf/common/tool_main.h"
#include "perf/hosts/host_list.h"
#include "perf/hosts/hosts_launcher.h"
#include "plugins/common/abandoned_segments.h"

namespace onebit::perf {
namespace {

constexpr double kMaxGraceSeconds = 86400;
// The entry point of the Python package reads from this variable how the ranks' PyTorch averages.
constexpr char kTorchDdpVariable[] = "ONEBIT_TORCH_DDP";

// PROGRAM is not an option, so CLI11's usage line would omit it.
class Help : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: onebit_run -n N [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n"
           "       onebit_run --hosts HOST:RANKS,... [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n";
  }
};

int Run(int argc, const char* const* argv) {
  LaunchOptions options;
  options.tool = "onebit_run";
  HostsOptions hosts;
  std::string host_list;
  int processes = 0;
  bool is_preloaded = false;
  std::string ddp;
  bool is_agent = false;
  CLI::App app(
      "Starts PROGRAM as N processes, the ranks of one job: on this host, or by --hosts on\n"
      "several, through ssh. Each finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and\n"
      "ONEBIT_RENDEZVOUS in its environment, which is all that onebitCommInitEnv needs, and\n"
      "MASTER_ADDR and MASTER_PORT for PyTorch's init_process_group. On a host with more than\n"
      "one rank OMP_NUM_THREADS is 1 unless it is set, as under torchrun. When one rank fails,\n"
      "so does the job: the others are ended, and its exit status is that of onebit_run.",
      options.tool);
  app.formatter(std::make_shared<Help>());
  app.add_option("-n,--np", processes,
                 "processes to start; with --hosts: the first N ranks that it names")
      ->check(CLI::Range(1, kMaxProcesses))
      ->type_name("N");
  app.add_option("--hosts", host_list,
                 "hosts and the ranks that each runs, \"a:4,user@b:4\"; ssh must reach them\n"
                 "without a password, and they need onebit, PROGRAM and this folder at the\n"
                 "same paths (docs/several-hosts.md)")
      ->type_name("HOST:RANKS,...");
  app.add_option("-x", hosts.variables,
                 "with --hosts: a variable that ranks get besides all ONEBIT_*; may be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME[=VALUE]");
  app.add_option("--rsh", hosts.remote_shell, "with --hosts: the command that reaches a host")
      ->type_name("COMMAND")
      ->capture_default_str();
  // How --hosts starts this program on a host.
  app.add_flag("--agent", is_agent)->group("");
  app.add_flag("--tag-output", options.is_output_tagged,
               "begin every line of output with its rank, \"[3] \"");
  app.add_flag("--preload", is_preloaded,
               "put libonebit-nccl-preload.so in front of PROGRAM's NCCL, by LD_PRELOAD of the\n"
               "ranks; ONEBIT_NCCL_RULES tells it what to compress (docs/preload.md)");
  app.add_option("--ddp", ddp,
                 "compress what PyTorch's DistributedDataParallel averages in an unmodified\n"
                 "PROGRAM: \"fp4\", \"int8,dense_iterations=10\"; needs PyTorch 2.5 and the\n"
                 "Python package, installed for PROGRAM's Python (docs/python.md)")
      ->type_name("CODEC[,OPTION=VALUE,...]");
  app.add_option("--grace", options.grace_seconds,
                 "time for the others to end by themselves when one has failed")
      ->check(Number(fmt::format("in 0 ... {}", kMaxGraceSeconds),
                     [](double seconds) { return seconds >= 0 && seconds <= kMaxGraceSeconds; }))
      ->type_name("SECONDS")
      ->capture_default_str();
  app.prefix_command();
  if (!ParseCommandLine(app, argc, argv)) return kExitOk;
  if (is_agent) {
    const int status = ServeRanks();
    plugin::RemoveAbandonedSegments();
    return status;
  }
  if (host_list.empty()) {
    if (app.count("-x") + app.count("--rsh") > 0) {
      throw UsageError("-x and --rsh are for --hosts: ranks of this host have all variables");
    }
    if (processes == 0) {
      throw UsageError("-n N says how many ranks to start on this host, or --hosts on which hosts");
    }
  }
  options.arguments = app.remaining();
  if (!options.arguments.empty() && options.arguments.front() == "--") {
    options.arguments.erase(options.arguments.begin());
  }
  if (options.arguments.empty()) throw UsageError("there is no program to start");
  options.program = options.arguments.front();
  // A program's name does not begin with a dash: this is a misspelt option.
  if (options.program.starts_with('-')) {
    throw UsageError(fmt::format("unknown option {}", options.program));
  }
  if (is_preloaded) options.preload = PreloadPath();
  if (app.count("--ddp") > 0) {
    if (ddp.empty()) throw UsageError("--ddp is empty: give a codec, such as --ddp fp4");
    // Ranks get all variables of the library, on other hosts as well.
    setenv(kTorchDdpVariable, ddp.c_str(), 1);
  }
  int status;
  if (host_list.empty()) {
    options.processes = processes;
    status = Launch(options);
  } else {
    hosts.hosts = ParseHostList(host_list);
    if (processes > 0) TakeRanks(processes, &hosts.hosts);
    status = LaunchOnHosts(options, hosts);
  }
  plugin::RemoveAbandonedSegments();
  return status;
}

}  // namespace
}  // namespace onebit::perf

int main(int argc, char** argv) {
  using namespace onebit::perf;
  return RunTool("onebit_run", true, [&] { return Run(argc, argv); });
}
