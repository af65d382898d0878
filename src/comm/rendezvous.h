// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Finds the server of a communicator's control channel, and the key that admits its ranks.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "base/status.h"
#include "comm/control_client.h"
#include "comm/launch_rendezvous.h"

namespace onebit {

// The settings that matter for the rendezvous.
struct RendezvousOptions {
  std::string interfaces;   // ONEBIT_SOCKET_IFNAME
  std::string secret;       // ONEBIT_SECRET; empty: none
  std::string secret_file;  // ONEBIT_SECRET_FILE; empty: none
  std::string job;          // FindJobWord
  int ranks = 1;
  std::chrono::milliseconds connect_timeout{60'000};  // for all ranks to join
};

// Returns the names of the interfaces that the setting selects, "eth0,eth1"; "" if it is not set.
Result<std::string> SelectedInterfaces(const RendezvousOptions& options);

// "host:pid" of this process.
std::string NameOfThisProcess();

// Starts a server in this process with a key of its own; it serves one communicator.
Result<UniqueId> OpenRendezvous(const RendezvousOptions& options);

// A rendezvous reserved for a later communicator: a port that is open but not served until Serve.
// Ranks that connect earlier wait in its backlog.
class SpareRendezvous {
 public:
  // Listens at `address`, unless `options` select an interface. Takes any port.
  static Result<SpareRendezvous> Open(const RendezvousOptions& options, SocketAddress address);

  const UniqueId& id() const { return id_; }
  // Starts a server for one communicator, whose ranks must also know its `purpose`. May be called
  // again: the server of a failed attempt ends first. The server ends if no rank has come within
  // `first_rank_timeout`.
  Status Serve(std::string_view purpose, std::chrono::milliseconds first_rank_timeout) const;

 private:
  SpareRendezvous(Descriptor listener, const UniqueId& id)
      : listener_(std::move(listener)), id_(id) {}

  Descriptor listener_;
  UniqueId id_;
};

struct RendezvousPoint {
  ControlClient::Locate locate;
  std::string source;             // names the origin of the address in texts
  std::function<void()> give_up;  // to be called after a failed start; may be empty
  bool is_final = true;           // ControlClient::Join
};

// Follows the launcher's variables. Rank 0 starts the server.
Result<RendezvousPoint> ResolveRendezvous(const Rendezvous& rendezvous, int rank,
                                          const RendezvousOptions& options);

}  // namespace onebit
