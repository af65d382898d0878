// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/nccl_preload/preload_session.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "plugins/nccl_preload/preload_log.h"
#include "plugins/nccl_preload/program_driver.h"
#include "plugins/nccl_preload/real_nccl.h"
#include "plugins/nccl_preload/rules_stamp.h"
#include "plugins/nccl_preload/without_throwing.h"

namespace onebit::preload {
namespace {

// Residuals of fp4 with error feedback take 16 bytes an element, 16 GiB in all.
constexpr uint64_t kMostElements = uint64_t{1} << 30;

const char* SettingOf(const char* name) {
  const char* const value = secure_getenv(name);
  return value == nullptr ? "" : value;
}

// Ranks of the job, as torchrun and onebit_run, Open MPI, MPICH or Slurm say; 0 if none does.
int JobRanks() {
  for (const char* name : {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}) {
    const std::string_view value = SettingOf(name);
    int ranks = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), ranks);
    if (error == std::errc() && ranks > 0) return ranks;
  }
  return 0;
}

// True if NCCL reads this field of the configuration.
bool Has(const Config* config, size_t end_of_field, unsigned version) {
  return config != nullptr && config->size >= end_of_field && config->magic == kConfigMagic &&
         config->version >= version;
}

// The name in a configuration, if it is as long and as new as the name needs.
std::string NameIn(const Config* config) {
  if (!Has(config, sizeof *config, kFirstVersionWithName) || config->comm_name == nullptr) {
    return "";
  }
  return config->comm_name;
}

std::atomic<bool> is_report_wanted{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // for the handler of a signal

constexpr char kScopeLost[] =
    "processes of this job move floats on several NCCL communicators, or on one that lacks ranks "
    "of the job, so the default rule compresses nothing: name a communicator in ONEBIT_NCCL_RULES, "
    "such as comm=NAME:fp4";
constexpr char kScopeLostLate[] =
    "this process begins to move floats on a second NCCL communicator. The default rule keeps "
    "compressing the first, on which all ranks have agreed: if it carries more than gradients, "
    "name communicators in ONEBIT_NCCL_RULES, such as comm=NAME:fp4";

std::string ExpandedPath(std::string path) {
  const size_t at = path.find("%p");
  if (at != std::string::npos) path.replace(at, 2, std::to_string(getpid()));
  return path;
}

}  // namespace

Session& Session::Get() {
  static Session* const session = new Session;
  return *session;
}

Session::Session()
    : rules_text_(SettingOf("ONEBIT_NCCL_RULES")), process_(getpid()), scope_(JobRanks()) {
  if (const auto error = ParseRules(rules_text_, &rules_)) {
    Log(LogLevel::kWarn, "ONEBIT_NCCL_RULES, %s: nothing is compressed", error->c_str());
  }
  StartStats();
  is_idle_ = rules_.is_off() && stats_file_.empty();
  Log(LogLevel::kInfo, "between this program and NCCL: %s",
      rules_.is_off() ? "no rules, so calls pass unchanged" : rules_text_.c_str());
}

void Session::MarkId(UniqueId* id) const {
  if (!rules_.is_off()) StampId(rules_text_, id);
}

bool Session::CheckMarks(UniqueId* ids, int count, bool* are_shared) const {
  bool are_all_equal = count > 0;
  for (int i = 0; i < count; ++i) {
    const Stamp stamp = TakeStamp(rules_text_, &ids[i]);
    are_all_equal &= stamp == Stamp::kEqual;
    if (stamp == Stamp::kNone || (stamp == Stamp::kEqual && !rules_.is_off())) {
      continue;
    }
    Log(LogLevel::kWarn,
        "the process that made the unique id has different rules from this one, which has %s%s%s: "
        "set ONEBIT_NCCL_RULES to the same text on all ranks",
        rules_text_.empty() ? "none" : "\"", rules_text_.c_str(), rules_text_.empty() ? "" : "\"");
    return false;
  }
  *are_shared = are_all_equal;
  if (!rules_.is_off() && !are_all_equal) {
    Log(LogLevel::kWarn,
        "the process that made the unique id of a communicator has no ONEBIT_NCCL_RULES, or does "
        "not use this library: calls on that communicator are not compressed");
  }
  return true;
}

bool Session::HasSharedRules(Comm native) {
  const std::shared_ptr<PreloadComm> known = Find(native);
  return known != nullptr && known->has_shared_rules();
}

std::shared_ptr<PreloadComm> Session::Insert(Comm native, PreloadComm::Origin origin) {
  static RealFunction<Result(Comm, int*)> count("ncclCommCount");
  std::call_once(asks_for_reports_, [this] { AskForReports(); });
  int ranks = 0;
  if (native == nullptr || count(native, &ranks) != kSuccess) return nullptr;
  std::shared_ptr<PreloadComm> former;  // ends after the lock, if nobody has removed it
  const std::lock_guard lock(mutex_);
  auto comm = std::make_shared<PreloadComm>(rules_, next_number_++, std::move(origin), ranks,
                                            kMostElements);
  former = std::exchange(comms_[native], comm);
  return comm;
}

// The answer must be that of all ranks, so it does not depend on the state that NCCL reports: a
// rank for which NCCL had nothing to wait for would find a communicator that is ready already.
bool Session::IsBlocking(const Config* config, Comm parent) {
  if (const char* const value = std::getenv("NCCL_COMM_BLOCKING"); value != nullptr && *value) {
    const long long number = std::strtoll(value, nullptr, 0);
    if (number == 0 || number == 1) return number == 1;
  }
  constexpr size_t kEnd = offsetof(Config, blocking) + sizeof(int);
  if (Has(config, kEnd, kFirstVersionWithBlocking) &&
      (config->blocking == 0 || config->blocking == 1)) {
    return config->blocking == 1;
  }
  const std::shared_ptr<PreloadComm> known = Find(parent);
  return known == nullptr || known->is_blocking();
}

bool Session::Add(Comm native, const Config* config, Comm parent, bool has_shared_rules) {
  if (is_idle_ || !IsBlocking(config, parent)) return true;
  std::string name = NameIn(config);
  if (config == nullptr) {  // NCCL takes that of the parent
    if (const std::shared_ptr<PreloadComm> known = Find(parent)) name = known->facts().name;
  }
  const std::shared_ptr<PreloadComm> comm =
      Insert(native, {.name = std::move(name), .has_shared_rules = has_shared_rules});
  if (comm == nullptr || !has_shared_rules || comm->facts().ranks == 1) return true;
  if (comm->Join(native)) {
    TellPresence(native);
    return true;
  }
  Remove(native);
  return false;
}

// Users see that the results are not NCCL's alone, once in a job as a rule.
void Session::TellPresence(Comm native) {
  static RealFunction<Result(Comm, int*)> user_rank("ncclCommUserRank");
  int rank = 0;
  if (user_rank(native, &rank) != kSuccess || rank != 0) return;
  const std::lock_guard lock(mutex_);
  if (std::exchange(has_told_presence_, true)) return;
  Log(LogLevel::kVersion, "in front of NCCL, to compress calls by ONEBIT_NCCL_RULES=%s",
      rules_text_.c_str());
}

std::shared_ptr<PreloadComm> Session::FindOrAdd(Comm native) {
  std::shared_ptr<PreloadComm> found = Find(native);
  return found != nullptr ? found : Insert(native, {.name = "", .is_blocking = false});
}

std::shared_ptr<PreloadComm> Session::Remove(Comm native) {
  const std::lock_guard report_lock(report_mutex_);
  std::shared_ptr<PreloadComm> removed;
  {
    const std::lock_guard lock(mutex_);
    const auto found = comms_.find(native);
    if (found == comms_.end()) return nullptr;
    removed = std::move(found->second);
    comms_.erase(found);
    scope_.Forget(removed->number());
  }
  const auto add = [&] {
    counts_.Add(removed->facts(), removed->traffic());
    return kSuccess;
  };
  WithoutThrowing("record the traffic of a communicator", add, [] {});
  return removed;
}

std::shared_ptr<PreloadComm> Session::Find(Comm native) {
  const std::lock_guard lock(mutex_);
  const auto found = comms_.find(native);
  return found == comms_.end() ? nullptr : found->second;
}

bool Session::ObserveScope(const PreloadComm& comm, const CallFacts& call) {
  if (!rules_.is_default) return true;
  const std::lock_guard lock(mutex_);
  scope_.Observe(comm.number(), comm.facts(), call);
  if (scope_.is_lost()) TellScope(was_scope_agreed_ ? kScopeLostLate : kScopeLost);
  return scope_.Holds(comm.number());
}

// Requires the mutex. The first text is the last.
void Session::TellScope(const char* text) {
  if (!std::exchange(has_told_scope_, true)) Log(LogLevel::kWarn, "%s", text);
}

void Session::Pass(Comm native, const CallFacts& call, Reason reason) {
  if (is_idle_) return;
  const auto observe = [&] {
    const std::shared_ptr<PreloadComm> comm = FindOrAdd(native);
    if (comm == nullptr) return kSuccess;
    ObserveScope(*comm, call);
    Count(*comm, call, reason);
    return kSuccess;
  };
  // The default rule has missed a call here, which the other ranks have not.
  WithoutThrowing("observe an NCCL call", observe, [] {});
}

void Session::GiveUp(Comm native) {
  if (const std::shared_ptr<PreloadComm> known = Find(native)) known->GiveUp();
}

std::shared_ptr<PreloadComm> Session::FindForCandidate(Comm native, const CallFacts& call,
                                                       const CallOptions& options) {
  if (is_idle_) return nullptr;
  if (IsReduction(call.operation)) return FindOrAdd(native);
  std::shared_ptr<PreloadComm> known = Find(native);
  const bool is_selected =
      !rules_.is_off() && known != nullptr && known->can_compress() &&
      (options.compression || rules_.MaySelect(known->facts(), call.operation));
  return is_selected ? known : nullptr;
}

Session::Route Session::Choose(std::shared_ptr<PreloadComm> comm, const DataCall& call,
                               const CallOptions& options) {
  Route route;
  const bool is_in_scope = ObserveScope(*comm, call.facts);
  Decision decision = comm->Decide(call, options);
  if (comm->has_given_up() && decision.reason != Reason::kNoRule) {
    route.error = kRemoteError;
    return route;
  }
  if (!comm->can_compress() && decision.reason != Reason::kNoRule) {
    decision.reason = Reason::kForbidden;
  } else if (decision.asks_scope) {
    route.exchange = {comm, call.stream, is_in_scope};
  }
  if (rules_.is_default && !options.compression) NoteScope(decision.reason);
  bool is_own = decision.reason == Reason::kCompressed ||
                (IsPair(call.facts.operation) && comm->can_compress());
  // Ranks capture the same calls, so this does not part them.
  if (is_own && IsCaptured(call.stream)) {
    decision.reason = Reason::kForbidden;
    is_own = false;
  }
  if (is_own) {
    route.comm = std::move(comm);
    route.decision = std::move(decision);
  } else {
    Count(*comm, call.facts, decision.reason);
  }
  return route;
}

void Session::NoteScope(Reason reason) {
  const std::lock_guard lock(mutex_);
  if (reason == Reason::kCompressed) was_scope_agreed_ = true;
  if (reason == Reason::kOtherComm) TellScope(kScopeLost);
}

// A report that lacks a call is no reason to end a training.
void Session::Count(const PreloadComm& comm, const CallFacts& call, Reason reason) {
  if (stats_file_.empty()) return;
  const auto count = [&] {
    counts_.Count(comm.facts(), call, reason);
    if (is_report_wanted.load(std::memory_order_relaxed) && is_report_wanted.exchange(false)) {
      WriteReport();
    }
    return kSuccess;
  };
  WithoutThrowing("count an NCCL call", count, [] {});
}

// The setting is a file, and after a comma the signal that asks for a report.
void Session::StartStats() {
  stats_file_ = SettingOf("ONEBIT_NCCL_STATS");
  for (const auto& [suffix, number] : {std::pair(",USR1", SIGUSR1), std::pair(",USR2", SIGUSR2)}) {
    if (!stats_file_.ends_with(suffix)) continue;
    stats_file_.resize(stats_file_.size() - std::strlen(suffix));
    report_signal_ = number;
  }
}

// With the first communicator CUDA has started, which at the end of the process must still be there
// for a report: handlers run in the order opposite to that of their registration.
void Session::AskForReports() {
  if (stats_file_.empty()) return;
  std::atexit([] {
    const auto write = [] {
      Get().WriteReport();
      return kSuccess;
    };
    WithoutThrowing("write the report", write, [] {});
  });
  if (report_signal_ == 0) return;
  struct sigaction former = {};
  sigaction(report_signal_, nullptr, &former);
  if (former.sa_handler != SIG_DFL) {
    Log(LogLevel::kWarn,
        "ONEBIT_NCCL_STATS: the program handles %s itself, so this signal writes no report",
        report_signal_ == SIGUSR1 ? "SIGUSR1" : "SIGUSR2");
    return;
  }
  struct sigaction wanted = {};
  wanted.sa_handler = [](int) { is_report_wanted = true; };
  wanted.sa_flags = SA_RESTART;
  sigaction(report_signal_, &wanted, nullptr);
}

void Session::MeasureResiduals(Comm native) {
  if (stats_file_.empty()) return;
  const std::shared_ptr<PreloadComm> known = Find(native);
  const auto measure = [&] {
    if (known != nullptr) known->MeasureResiduals();
    return kSuccess;
  };
  WithoutThrowing("measure residuals", measure, [] {});
}

void Session::WriteReport() {
  if (getpid() != process_) return;
  const std::lock_guard report_lock(report_mutex_);
  std::vector<std::shared_ptr<PreloadComm>> comms;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [native, comm] : comms_) comms.push_back(comm);
  }
  CallCounts::TrafficByName live;
  for (const auto& comm : comms) live[std::string(comm->facts().name)] += comm->traffic();
  const std::string report = counts_.Report(live);
  const bool is_stderr = stats_file_ == "stderr";
  std::FILE* const file = is_stderr ? stderr : std::fopen(ExpandedPath(stats_file_).c_str(), "w");
  if (file == nullptr) {
    Log(LogLevel::kWarn, "ONEBIT_NCCL_STATS: %s cannot be written: %s", stats_file_.c_str(),
        std::strerror(errno));
    return;
  }
  const char* const rank = SettingOf("RANK");
  std::fprintf(file, "onebit: NCCL calls in process %d%s%s\n%s", static_cast<int>(process_),
               *rank == '\0' ? "" : ", rank ", rank, report.empty() ? "none\n" : report.c_str());
  if (!is_stderr) std::fclose(file);
}

}  // namespace onebit::preload
