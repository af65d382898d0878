// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <memory>

#include "base/log.h"
#include "base/settings.h"
#include "comm/control_server.h"
#include "comm/host_lookup.h"
#include "comm/interfaces.h"
#include "comm/known_network.h"
#include "comm/rendezvous_file.h"
#include "comm/secret_file.h"

namespace onebit {
namespace {

// A shorter secret could be guessed by trying.
constexpr size_t kShortestSecret = 16;

Result<std::string> SecretOf(const RendezvousOptions& options) {
  if (!options.secret.empty() && !options.secret_file.empty()) {
    return Error(Code::kInvalidUsage,
                 "environment variables ONEBIT_SECRET and ONEBIT_SECRET_FILE are both set: unset "
                 "one of them");
  }
  std::string secret = options.secret;
  const char* source = "ONEBIT_SECRET";
  if (!options.secret_file.empty()) {
    source = "ONEBIT_SECRET_FILE";
    ONEBIT_ASSIGN_OR_RETURN(secret, ReadSecretFile(options.secret_file));
  }
  // Files usually end with a line feed, and so does a variable that Kubernetes makes from one. It
  // is no part of the secret.
  secret.erase(secret.find_last_not_of(" \t\r\n") + 1);
  const bool is_set = !options.secret.empty() || !options.secret_file.empty();
  if (is_set && secret.size() < kShortestSecret) {
    return Error(Code::kInvalidUsage,
                 "environment variable {}: the secret has {} characters, but must have at least {}",
                 source, secret.size(), kShortestSecret);
  }
  return secret;
}

Result<std::vector<Interface>> FindInterfaces(const RendezvousOptions& options) {
  return FindInterfaces(options.interfaces, EnvironmentView(ProcessEnvironment()));
}

// Added to the time that ranks have for joining, so that a late one still gets the reason.
constexpr std::chrono::milliseconds kGrace{60'000};

Result<UniqueId> StartServer(ControlServer::Options options) {
  options.process = NameOfThisProcess();
  const JobKey key = options.key;
  ONEBIT_ASSIGN_OR_RETURN(const SocketAddress bound, ControlServer::Start(std::move(options)));
  return UniqueId{.address = bound, .key = key};
}

// Listens on every interface if others may reach this process by one of several only.
Result<UniqueId> StartServerAt(std::span<const Interface> interfaces,
                               ControlServer::Options options) {
  const SocketAddress& first = interfaces.front().address;
  if (first.family() != AF_INET) interfaces = interfaces.first(1);  // an id has room for no more
  options.address = interfaces.size() == 1 ? first : AnyAddress(first.family());
  ONEBIT_ASSIGN_OR_RETURN(UniqueId id, StartServer(std::move(options)));
  const uint16_t port = id.address.port();
  for (const Interface& interface : interfaces.first(std::min(interfaces.size(), kMostAddresses))) {
    id.more_addresses.push_back(interface.address);
    id.more_addresses.back().set_port(port);
  }
  id.address = id.more_addresses.front();
  id.more_addresses.erase(id.more_addresses.begin());
  return id;
}

// Limits the question to another rank 0, whose host may be gone.
constexpr std::chrono::milliseconds kQuestion{2000};

// Asks another process at the place where this rank 0 wants to wait whether it is a rank 0 as well.
Status CheckUnclaimed(const UniqueId& place, const RendezvousOptions& options) {
  return ControlClient::CheckUnclaimed({.rank = 0,
                                        .ranks = options.ranks,
                                        .connect_timeout = kQuestion,
                                        .process = NameOfThisProcess(),
                                        .job = options.job},
                                       place);
}

bool IsLoopbackName(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// Many systems resolve their own name to a loopback address, which no other host can reach.
SocketAddress ListeningAddress(const std::string& host, const SocketAddress& resolved) {
  if (!resolved.is_loopback() || IsLoopbackName(host)) return resolved;
  return AnyAddress(resolved.family(), resolved.port());
}

Result<RendezvousPoint> ResolveAddress(const Rendezvous& rendezvous, int rank,
                                       const std::string& secret,
                                       const RendezvousOptions& options) {
  const JobKey key = KeyOfSecret(secret);
  if (rank == 0) {
    if (secret.empty()) {
      Log(LogLevel::kWarn,
          "rank 0 listens at {}:{} ({}) without a secret, so anyone who can reach it can join: set "
          "ONEBIT_SECRET or ONEBIT_SECRET_FILE on all ranks",
          rendezvous.host, rendezvous.port, rendezvous.source);
    }
    const Deadline deadline = std::chrono::steady_clock::now() + options.connect_timeout;
    ONEBIT_ASSIGN_OR_RETURN(const auto addresses,
                            HostLookup(rendezvous.host, rendezvous.port).Wait(deadline));
    const SocketAddress address = ListeningAddress(rendezvous.host, addresses.front());
    const auto started = StartServer({.address = address,
                                      .key = key,
                                      .job = options.job,
                                      .first_rank_timeout = options.connect_timeout + kGrace});
    if (!started.ok()) {
      SocketAddress any_port = address;
      any_port.set_port(0);
      const bool is_port_taken = Listen(any_port).ok();
      if (is_port_taken) {
        ONEBIT_TRY(CheckUnclaimed({.address = addresses.front(), .key = key}, options));
      }
      return Error(started.status().code(),
                   "rank 0 must listen at {}:{} ({}): {}; it must be a free port of the host where "
                   "rank 0 runs",
                   rendezvous.host, rendezvous.port, rendezvous.source, started.status().text());
    }
    return RendezvousPoint{
        .locate = [id = started.value()](Deadline) -> Result<UniqueId> { return id; },
        .source = rendezvous.source,
        .give_up = ControlServer::AnswerWaiting,
        .is_final = true};
  }
  // Tries all addresses of the host in turn, because some may be unreachable from here.
  auto locate = [lookup = HostLookup(rendezvous.host, rendezvous.port), key,
                 next_address = size_t{0}](Deadline deadline) mutable -> Result<UniqueId> {
    ONEBIT_ASSIGN_OR_RETURN(const auto addresses, lookup.Wait(deadline));
    return UniqueId{.address = addresses[next_address++ % addresses.size()], .key = key};
  };
  return RendezvousPoint{
      .locate = std::move(locate), .source = rendezvous.source, .give_up = {}, .is_final = true};
}

Result<RendezvousPoint> ResolveFile(const Rendezvous& rendezvous, int rank,
                                    const std::string& secret, const RendezvousOptions& options) {
  const std::string& path = rendezvous.path;
  // The library creates the folder only if it chose it.
  if (rendezvous.source != "ONEBIT_RENDEZVOUS") ONEBIT_TRY(MakePrivateFolderOf(path));
  std::function<void()> give_up;
  if (rank == 0) {
    ONEBIT_ASSIGN_OR_RETURN(const auto interfaces, FindInterfaces(options));
    const JobKey key = RandomKey();
    const auto text = std::make_shared<std::string>();
    ONEBIT_ASSIGN_OR_RETURN(
        UniqueId id,
        StartServerAt(interfaces, {.key = MixedKey(key, secret),
                                   .job = options.job,
                                   .on_closed = [path, text] { RemoveRendezvousFile(path, *text); },
                                   .first_rank_timeout = options.connect_timeout + kGrace}));
    id.key = key;
    ONEBIT_ASSIGN_OR_RETURN(std::string content, WriteRendezvousFile(path, id, [&](UniqueId found) {
                              found.key = MixedKey(found.key, secret);
                              return CheckUnclaimed(found, options);
                            }));
    {
      // The loop will read it.
      std::lock_guard lock(ControlLoop::Get().mutex());
      *text = std::move(content);
    }
    // The file holds a secret and is useless once this process has ended.
    give_up = [path, text] {
      ControlServer::AnswerWaiting();
      RemoveRendezvousFile(path, *text);
    };
    Log(LogLevel::kInfo, "rank 0 waits at {} ({}), as {} says", id.address.Text(),
        NamesOf(interfaces), path);
  }
  auto locate = [path, secret, turn = size_t{0}](Deadline) mutable -> Result<UniqueId> {
    ONEBIT_ASSIGN_OR_RETURN(UniqueId id, ReadRendezvousFile(path));
    id.key = MixedKey(id.key, secret);
    return id.AtTurn(turn++);
  };
  // A file may be left from a job that was killed; rank 0 of this one replaces it.
  return RendezvousPoint{.locate = std::move(locate),
                         .source = Format("rendezvous file {}", path),
                         .give_up = std::move(give_up),
                         .is_final = false};
}

}  // namespace

Result<std::string> SelectedInterfaces(const RendezvousOptions& options) {
  if (options.interfaces.empty()) return std::string();
  ONEBIT_ASSIGN_OR_RETURN(const auto interfaces, ListInterfaces());
  ONEBIT_ASSIGN_OR_RETURN(const auto selected, SelectInterfaces(interfaces, options.interfaces));
  return NamesOf(selected);
}

std::string NameOfThisProcess() {
  char host[256] = "?";
  gethostname(host, sizeof(host) - 1);
  return Format("{}:{}", host, getpid());
}

ControlClient::Locate LocateAt(const UniqueId& id) {
  return [id, turn = size_t{0}](Deadline) mutable -> Result<UniqueId> { return id.AtTurn(turn++); };
}

Result<UniqueId> OpenRendezvous(const RendezvousOptions& options) {
  ONEBIT_ASSIGN_OR_RETURN(const auto interfaces, FindInterfaces(options));
  ONEBIT_ASSIGN_OR_RETURN(UniqueId id, StartServerAt(interfaces, {.key = RandomKey()}));
  Log(LogLevel::kInfo, "a unique id was made: ranks meet at {} ({})", id.address.Text(),
      NamesOf(interfaces));
  return id;
}

Result<SparePort> OpenSparePort(const RendezvousOptions& options, SocketAddress address) {
  address.set_port(0);
  if (!options.interfaces.empty()) {
    ONEBIT_ASSIGN_OR_RETURN(const auto interfaces, FindInterfaces(options));
    address = interfaces.front().address;
  }
  ONEBIT_ASSIGN_OR_RETURN(Descriptor listener, Listen(address));
  ONEBIT_ASSIGN_OR_RETURN(address, LocalAddress(listener));
  return SparePort{.listener = std::move(listener), .id = {.address = address, .key = RandomKey()}};
}

Result<RendezvousPoint> ResolveRendezvous(const Rendezvous& rendezvous, int rank,
                                          const RendezvousOptions& options) {
  ONEBIT_ASSIGN_OR_RETURN(const std::string secret, SecretOf(options));
  if (rank == 0) ControlServer::RetireFailed();
  switch (rendezvous.kind) {
    case Rendezvous::Kind::kAddress:
      return ResolveAddress(rendezvous, rank, secret, options);
    case Rendezvous::Kind::kFile:
      return ResolveFile(rendezvous, rank, secret, options);
    case Rendezvous::Kind::kNone:
      break;
  }
  return Error(Code::kInternalError, "there is no address where ranks could meet");
}

}  // namespace onebit
