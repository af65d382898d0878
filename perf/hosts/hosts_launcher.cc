// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/hosts/hosts_launcher.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "perf/common/child_process.h"
#include "perf/common/job_guard.h"
#include "perf/common/job_supervisor.h"
#include "perf/common/library_setting.h"
#include "perf/common/rank_environment.h"
#include "perf/common/tool_error.h"
#include "perf/hosts/host_link.h"
#include "perf/hosts/rank_agent.h"

namespace onebit::perf {
namespace {

using std::chrono::milliseconds;

constexpr char kConnectTimeout[] = "ONEBIT_CONNECT_TIMEOUT_MS";
// Agents show that they live once a beat, however impatient the ranks are with each other.
constexpr milliseconds kLeastLossTimeout = 3 * kAgentBeat;
constexpr int kSecretBytes = 32;
constexpr int kStoppedBySignal = 128;

milliseconds TimeOf(std::string_view name) {
  return milliseconds(std::atoll(SettingValue(name).c_str()));
}

// The variables that the ranks of all hosts get from this process. Its word for this host is not
// one of them: it would make one host of all.
std::vector<std::string> ForwardedVariables(const std::vector<std::string>& named) {
  std::vector<std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const std::string name = text.substr(0, text.find('='));
    const bool is_place = name == kRendezvousVariable || name == kJobVariable ||
                          name == kSecretVariable || name == kSecretFileVariable ||
                          name == kMasterAddressVariable || name == kMasterPortVariable;
    const bool is_of_library = name.starts_with("ONEBIT_") && name != kHostVariable;
    if (is_place ? IsSetByUser(name.c_str()) : is_of_library) {
      variables.push_back(text);
    }
  }
  for (const std::string& variable : named) {
    const size_t equals = variable.find('=');
    if (variable.empty() || equals == 0) {
      throw UsageError(fmt::format(
          "-x \"{}\" does not name a variable: write -x NAME or -x NAME=VALUE", variable));
    }
    if (equals != variable.npos) {
      variables.push_back(variable);
    } else if (const char* const value = std::getenv(variable.c_str())) {
      variables.push_back(fmt::format("{}={}", variable, value));
    } else {
      throw UsageError(fmt::format(
          "-x {0}: there is no such variable here: set it, or write -x {0}=VALUE", variable));
    }
  }
  return variables;
}

bool HasVariable(const std::vector<std::string>& variables, const std::string& name) {
  return std::any_of(variables.begin(), variables.end(),
                     [&](const std::string& variable) { return variable.starts_with(name + "="); });
}

// The folder of this process by the name that its shell knows. Where that is a symbolic link, the
// target may have another name on other hosts.
std::string WorkingFolder() {
  const char* const name = std::getenv("PWD");
  std::error_code ignored;
  const bool is_right = name != nullptr && std::filesystem::path(name).is_absolute() &&
                        std::filesystem::equivalent(name, ".", ignored);
  return is_right ? name : std::filesystem::current_path().string();
}

std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// The command that starts the agent on another host. ssh takes the first of contradicting options,
// so those of the user win.
std::vector<std::string> RemoteCommand(const HostsOptions& hosts, const std::string& name,
                                       const std::string& agent) {
  std::vector<std::string> command;
  for (std::string_view rest = hosts.remote_shell; !rest.empty();) {
    const size_t blank = std::min(rest.find(' '), rest.size());
    if (blank > 0) command.emplace_back(rest.substr(0, blank));
    rest.remove_prefix(std::min(blank + 1, rest.size()));
  }
  if (command.empty()) throw UsageError("--rsh: the command is empty");
  if (std::filesystem::path(command.front()).filename() == "ssh") {
    // ssh must not ask questions, because nobody could answer them.
    for (const char* option : {"-T", "-x", "-oBatchMode=yes", "-oConnectTimeout=10"}) {
      command.emplace_back(option);
    }
  }
  command.push_back(name);
  command.push_back(fmt::format("exec {} --agent", Quoted(agent)));
  return command;
}

// Returns the signal that told us to stop; 0: all agents have answered.
int AwaitAgents(SignalGate& signals, const std::vector<HostLink*>& links, milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    std::vector<RankEnd> ends;  // stays empty: there are no ranks yet
    std::vector<pollfd> waits = {{signals.descriptor(), POLLIN, 0}};
    const HostLink* missing = nullptr;
    for (HostLink* const link : links) {
      link->Collect(&ends);
      link->AppendWaits(&waits);
      if (!link->is_ready()) missing = link;
    }
    if (missing == nullptr) return 0;
    if (std::chrono::steady_clock::now() >= deadline) {
      throw ToolError(fmt::format("host {}: no answer within {} ms ({}){}", missing->host(),
                                  timeout.count(), kConnectTimeout, missing->StartupWords()));
    }
    poll(waits.data(), waits.size(), 100);
    while (const int signal = signals.Next()) {
      if (signal != SIGCHLD) return signal;
    }
  }
}

bool IsHere(const HostLink* link) { return link->is_this_host(); }

// The address of the first host that the others can reach.
std::string FirstAddress(const std::vector<HostLink*>& links) {
  if (!IsHere(links.front())) {
    const std::string& address = links.front()->hello().server_address;
    // A remote shell other than ssh tells no address.
    return address.empty() ? std::string(WithoutUser(links.front()->host())) : address;
  }
  const auto other = std::find_if_not(links.begin(), links.end(), IsHere);
  if (other == links.end()) return "127.0.0.1";
  const std::string& address = (*other)->hello().client_address;
  return address.empty() ? links.front()->host() : address;
}

// Fills in a meeting place and a secret unless the variables have their own.
AgentJob JobFor(const LaunchOptions& options, int ranks, const std::vector<std::string>& variables,
                const std::vector<HostLink*>& links) {
  AgentJob job;
  job.ranks = ranks;
  job.is_preloaded = !options.preload.empty();
  job.folder = WorkingFolder();
  job.arguments = options.arguments;
  job.variables = variables;
  const std::string address = FirstAddress(links);
  const AgentHello& first = links.front()->hello();
  if (!HasVariable(variables, kRendezvousVariable)) {
    const bool has_colons = address.find(':') != address.npos;
    job.rendezvous = has_colons ? fmt::format("[{}]:{}", address, first.rendezvous_port)
                                : fmt::format("{}:{}", address, first.rendezvous_port);
  }
  if (!HasVariable(variables, kJobVariable)) {
    job.variables.push_back(fmt::format("{}={}", kJobVariable, NewJobWord()));
  }
  if (!HasVariable(variables, kSecretVariable) && !HasVariable(variables, kSecretFileVariable)) {
    job.secret = RandomDigits(kSecretBytes);
  }
  if (!HasVariable(variables, kMasterAddressVariable) &&
      !HasVariable(variables, kMasterPortVariable)) {
    job.master_address = address;
    job.master_port = first.master_port;
  }
  return job;
}

}  // namespace

int LaunchOnHosts(const LaunchOptions& options, const HostsOptions& hosts) {
  const std::vector<std::string> variables = ForwardedVariables(hosts.variables);
  OccupyStandardStreams();
  SignalGate signals;
  // Hosts end the ranks of a launcher that is silent, as a stopped one would be.
  std::signal(SIGTSTP, SIG_IGN);
  JobGuard guard("");
  Supervisor supervisor(signals, options.tool, options.grace_seconds);
  const std::string agent = std::filesystem::read_symlink("/proc/self/exe");
  // Nothing tells whether the connection of ssh loses packets, so hosts get as long as ranks to
  // which packets get lost.
  const milliseconds loss_timeout = std::max(2 * TimeOf(kLossTimeout), kLeastLossTimeout);
  std::vector<HostLink*> links;
  int first_rank = 0;
  for (const HostRanks& host : hosts.hosts) {
    const bool is_this_host = IsThisHost(host.name);
    const auto same = std::find_if(links.begin(), links.end(), IsHere);
    if (is_this_host && same != links.end()) {
      throw UsageError(fmt::format(
          "--hosts: {} and {} are both this host: give it once, with the number of its ranks",
          (*same)->host(), host.name));
    }
    auto link = std::make_unique<HostLink>(
        HostLinkSpec{.host = host,
                     .is_this_host = is_this_host,
                     .first_rank = first_rank,
                     .command = is_this_host ? std::vector<std::string>{agent, "--agent"}
                                             : RemoteCommand(hosts, host.name, agent),
                     .agent_path = agent,
                     .is_output_tagged = options.is_output_tagged,
                     .loss_timeout = loss_timeout},
        guard, supervisor.output(), supervisor.errors());
    links.push_back(link.get());
    supervisor.Add(std::move(link));
    first_rank += host.ranks;
  }
  if (const int signal = AwaitAgents(signals, links, TimeOf(kConnectTimeout))) {
    return kStoppedBySignal + signal;
  }
  const AgentJob job = JobFor(options, CountRanks(hosts.hosts), variables, links);
  for (HostLink* const link : links) link->Start(job);
  return supervisor.Wait();
}

int ServeRanks() {
  OccupyStandardStreams();
  SignalGate signals;
  return RankAgent(signals).Run();
}

}  // namespace onebit::perf
