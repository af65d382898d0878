// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The interposer's state in this process: its settings, and its communicators beside NCCL's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "plugins/nccl_preload/call_counts.h"
#include "plugins/nccl_preload/call_options.h"
#include "plugins/nccl_preload/call_policy.h"
#include "plugins/nccl_preload/call_rules.h"
#include "plugins/nccl_preload/preload_comm.h"

namespace onebit::preload {

// The one object of its kind. It is never destroyed, because threads of NCCL outlive main.
// Thread-safe; no call waits for another rank or a device while its mutex is held.
class Session {
 public:
  // Reads the settings when it is called first.
  static Session& Get();

  bool has_rules() const { return !rules_.is_off(); }

  // Marks an id that NCCL has made for a communicator.
  void MarkId(UniqueId* id) const;
  // Removes the marks of the ids that a communicator is to be made from. Returns false, after a
  // warning, if its ranks have different rules: it must not be made. `are_shared` tells if all
  // have those of this process.
  bool CheckMarks(UniqueId* ids, int count, bool* are_shared) const;

  // Takes over a communicator that was made, and joins its ranks if they share rules. Collective on
  // it. `config` may be null; `parent` is the communicator it was made from, or null. Returns false
  // if joining has failed: the communicator must end.
  bool Add(Comm native, const Config* config, Comm parent, bool has_shared_rules);
  // True if all ranks of the communicator have the rules of this process.
  bool HasSharedRules(Comm native);
  // Measures the residuals of a communicator for the report, if there will be one.
  void MeasureResiduals(Comm native);
  // Forgets a communicator that is about to end, because NCCL may give its address to another one.
  // Destroying the result leaves the ranks; null if it was unknown.
  std::shared_ptr<PreloadComm> Remove(Comm native);
  // Null if it is unknown.
  std::shared_ptr<PreloadComm> Find(Comm native);

  // Observes a call that goes to NCCL, whatever the rules say.
  void Pass(Comm native, const CallFacts& call, Reason reason);
  // Returns the communicator if the call may be compressed, which Choose then decides; else null.
  // Reductions count as candidates on communicators that cannot compress, too.
  std::shared_ptr<PreloadComm> FindForCandidate(Comm native, const CallFacts& call,
                                                const CallOptions& options);
  // Decides about such a call.
  struct ScopeQuestion {
    std::shared_ptr<PreloadComm> comm;  // null: there is none
    Stream stream = nullptr;
    bool holds = false;
  };
  struct Route {
    // Makes the call; null: the real NCCL does.
    std::shared_ptr<PreloadComm> comm;
    Decision decision;
    ScopeQuestion exchange;   // that the ranks begin behind this call
    Result error = kSuccess;  // otherwise the call must not be made
  };
  Route Choose(std::shared_ptr<PreloadComm> comm, const DataCall& call, const CallOptions& options);
  // A call has failed on this rank, and maybe on no other.
  void GiveUp(Comm native);
  // Counts the outcome of a call that Choose has not sent to NCCL.
  void Count(const PreloadComm& comm, const CallFacts& call, Reason reason);

 private:
  Session();
  // The communicator, which is added without its ranks if it was made in a group, by several
  // threads at once or without waiting: such calls go to NCCL.
  std::shared_ptr<PreloadComm> FindOrAdd(Comm native);
  std::shared_ptr<PreloadComm> Insert(Comm native, PreloadComm::Origin origin);
  bool IsBlocking(const Config* config, Comm parent);
  // Observes a call for the default rule. Returns what the rule holds for, as far as this process
  // knows.
  bool ObserveScope(const PreloadComm& comm, const CallFacts& call);
  void TellScope(const char* text);
  void TellPresence(Comm native);
  // Observes the outcome of an agreement on the default rule.
  void NoteScope(Reason reason);
  void StartStats();
  void AskForReports();
  void WriteReport();

  std::string rules_text_;
  Rules rules_;
  std::string stats_file_;  // empty: no report
  bool is_idle_ = false;    // neither rules nor a report
  pid_t process_;           // children of a fork write no report
  CallCounts counts_;
  std::once_flag asks_for_reports_;
  int report_signal_ = 0;  // 0: none
  // Held while a communicator passes from comms_ to counts_; before mutex_.
  std::mutex report_mutex_;
  std::mutex mutex_;  // guards the rest
  std::map<Comm, std::shared_ptr<PreloadComm>> comms_;
  uint64_t next_number_ = 0;
  DefaultScope scope_;
  bool was_scope_agreed_ = false;  // the ranks of a communicator use the default rule
  bool has_told_scope_ = false;
  bool has_told_presence_ = false;
};

}  // namespace onebit::preload
