// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What this process has of the interposer: its settings, and its communicators beside NCCL's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "plugins/nccl_preload/call_counts.h"
#include "plugins/nccl_preload/call_policy.h"
#include "plugins/nccl_preload/call_rules.h"
#include "plugins/nccl_preload/preload_comm.h"

namespace onebit::preload {

// The one object of its kind. It is never destroyed, because threads of NCCL outlive main.
// Thread-safe; nothing waits while its mutex is held.
class Session {
 public:
  // Reads the settings at its first use, which is the first communicator.
  static Session& Get();

  // A communicator was made. `config` may be null. Collective on it if rules are set.
  void Add(Comm native, const Config* config);
  // It is about to end: leaves it first, because NCCL may give its address to the next one.
  void Remove(Comm native);
  void Abort(Comm native);
  // The error of the communicator beside it.
  Result AsyncError(Comm native);

  // A call on a communicator that is not compressed, whatever the rules say.
  void Pass(Comm native, const CallFacts& call, Reason reason = Reason::kNoRule);
  // A call that rules may be for. `comm` is null if it is to go to NCCL.
  struct Route {
    std::shared_ptr<PreloadComm> comm;
    Decision decision;
  };
  Route Choose(Comm native, const CallFacts& call, Stream stream);
  void Count(const PreloadComm& comm, const CallFacts& call, Reason reason) {
    counts_.Count(comm.facts(), call, reason);
  }

 private:
  Session();
  std::shared_ptr<PreloadComm> Find(Comm native);
  bool IsAllowed(const PreloadComm& comm, const CallFacts& call);
  void WriteReport() const;

  Rules rules_;
  uint64_t most_elements_ = 0;
  std::string stats_file_;  // empty: no report
  CallCounts counts_;
  std::mutex mutex_;  // guards the rest
  std::map<Comm, std::shared_ptr<PreloadComm>> comms_;
  uint64_t next_number_ = 0;
  DefaultScope scope_;
  bool has_told_scope_ = false;
};

}  // namespace onebit::preload
