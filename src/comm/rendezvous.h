// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a communicator find the server of its control channel, and how they come by
// the key that lets them in.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "base/status.h"
#include "comm/control_client.h"
#include "comm/launch_rendezvous.h"

namespace onebit {

// What of the settings matters here.
struct RendezvousOptions {
  std::string interfaces;                             // ONEBIT_SOCKET_IFNAME
  std::string secret;                                 // ONEBIT_SECRET; empty: none
  std::string secret_file;                            // ONEBIT_SECRET_FILE; empty: none
  std::chrono::milliseconds connect_timeout{60'000};  // of the ranks that are to come
};

// Names of the interfaces that the setting selects, "eth0,eth1"; "" if it is not set.
Result<std::string> SelectedInterfaces(const RendezvousOptions& options);

// "host:pid" of this process.
std::string NameOfThisProcess();

// Starts a server in this process with a key of its own; it serves one communicator.
Result<UniqueId> OpenRendezvous(const RendezvousOptions& options);

// A place to meet that is held ready for a later communicator: a port at which nobody answers until
// Serve. Who connects before waits there.
class SpareRendezvous {
 public:
  // At the interface that `options` select, if they do, else at `address` and any port.
  static Result<SpareRendezvous> Open(const RendezvousOptions& options, SocketAddress address);

  const UniqueId& id() const { return id_; }
  // Starts a server there, for one communicator: who joins must know its `purpose`, too. Any number
  // of times: the one of a former attempt that failed ends first. Ranks that do not come within
  // `patience` are not waited for.
  Status Serve(std::string_view purpose, std::chrono::milliseconds patience) const;

 private:
  SpareRendezvous(Descriptor listener, const UniqueId& id)
      : listener_(std::move(listener)), id_(id) {}

  Descriptor listener_;
  UniqueId id_;
};

struct RendezvousPoint {
  ControlClient::Locate locate;
  std::string source;             // where the address is from, for texts
  std::function<void()> give_up;  // empty: nothing; to be called when the start has failed
  bool is_final = true;           // ControlClient::Join
};

// As the launcher's variables say. Rank 0 starts the server there.
Result<RendezvousPoint> MeetAt(const Rendezvous& rendezvous, int rank,
                               const RendezvousOptions& options);

}  // namespace onebit
