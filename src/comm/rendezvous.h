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
#include "comm/meeting_point.h"

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

// Finds that server, by one of the id's addresses after the other.
ControlClient::Locate LocateAt(const UniqueId& id);

// Opens the port that a rank holds for as long as its communicator lives (MeetingPoint). Listens at
// `address`, unless `options` select an interface. Takes any port.
Result<SparePort> OpenSparePort(const RendezvousOptions& options, SocketAddress address);

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
