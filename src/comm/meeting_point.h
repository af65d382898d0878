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
struct MeetingOptions {
  std::string interfaces;                             // ONEBIT_SOCKET_IFNAME
  std::string secret;                                 // ONEBIT_SECRET; empty: none
  std::string secret_file;                            // ONEBIT_SECRET_FILE; empty: none
  std::chrono::milliseconds connect_timeout{60'000};  // of the ranks that are to come
};

// Names of the interfaces that the setting selects, "eth0,eth1"; "" if it is not set.
Result<std::string> SelectedInterfaces(const MeetingOptions& options);

// "host:pid" of this process.
std::string PlaceOfThisProcess();

// Starts a server in this process with a key of its own; it serves one communicator.
Result<UniqueId> OpenMeetingPoint(const MeetingOptions& options);

struct MeetingPoint {
  ControlClient::Locate locate;
  std::string source;             // where the address is from, for texts
  std::function<void()> give_up;  // empty: nothing; to be called when the start has failed
  bool is_final = true;           // ControlClient::Join
};

// As the launcher's variables say. Rank 0 starts the server there.
Result<MeetingPoint> MeetAt(const Rendezvous& rendezvous, int rank, const MeetingOptions& options);

}  // namespace onebit
