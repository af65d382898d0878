// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/nccl_preload/preload_session.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "plugins/nccl_preload/preload_log.h"
#include "plugins/nccl_preload/real_nccl.h"

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
  constexpr unsigned kMagic = 0xcafebeef;
  return config != nullptr && config->size >= end_of_field && config->magic == kMagic &&
         config->version >= version;
}

// The name in a configuration, if it is as long and as new as the name needs.
std::string NameIn(const Config* config) {
  if (!Has(config, sizeof *config, kFirstVersionWithName) || config->comm_name == nullptr) {
    return "";
  }
  return config->comm_name;
}

// True if calls on the stream become nodes of a graph.
bool IsCaptured(Stream stream) {
  using Function = int(Stream, int*);
  static auto* const is_capturing = reinterpret_cast<Function*>([]() -> void* {
    void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    return driver == nullptr ? nullptr : dlsym(driver, "cuStreamIsCapturing");
  }());
  int status = 0;
  return is_capturing != nullptr && is_capturing(stream, &status) == 0 && status != 0;
}

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
    : stats_file_(SettingOf("ONEBIT_NCCL_STATS")), process_(getpid()), scope_(JobRanks()) {
  if (const auto error = ParseRules(SettingOf("ONEBIT_NCCL_RULES"), &rules_)) {
    Log(LogLevel::kWarn, "ONEBIT_NCCL_RULES, %s: nothing is compressed", error->c_str());
  }
  if (!stats_file_.empty()) {
    std::atexit([] { Get().WriteReport(); });
  }
  is_idle_ = rules_.is_off() && stats_file_.empty();
  Log(LogLevel::kInfo, "between this program and NCCL: %s",
      rules_.is_off() ? "no rules, so calls pass as they are" : SettingOf("ONEBIT_NCCL_RULES"));
}

std::shared_ptr<PreloadComm> Session::Insert(Comm native, std::string name, bool is_blocking) {
  static RealFunction<Result(Comm, int*)> count("ncclCommCount");
  int ranks = 0;
  if (native == nullptr || count(native, &ranks) != kSuccess) return nullptr;
  std::shared_ptr<PreloadComm> former;  // ends after the lock, if nobody has removed it
  const std::lock_guard lock(mutex_);
  auto comm = std::make_shared<PreloadComm>(rules_, next_number_++, std::move(name), ranks,
                                            is_blocking, kMostElements);
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

void Session::Add(Comm native, const Config* config, Comm parent) {
  if (is_idle_ || !IsBlocking(config, parent)) return;
  const std::shared_ptr<PreloadComm> comm = Insert(native, NameIn(config), true);
  if (comm != nullptr && !rules_.is_off() && comm->facts().ranks > 1) comm->Join(native);
}

std::shared_ptr<PreloadComm> Session::FindOrAdd(Comm native) {
  std::shared_ptr<PreloadComm> found = Find(native);
  return found != nullptr ? found : Insert(native, "", false);
}

std::shared_ptr<PreloadComm> Session::Remove(Comm native) {
  const std::lock_guard lock(mutex_);
  const auto found = comms_.find(native);
  if (found == comms_.end()) return nullptr;
  std::shared_ptr<PreloadComm> removed = std::move(found->second);
  comms_.erase(found);
  scope_.Forget(removed->number());
  return removed;
}

std::shared_ptr<PreloadComm> Session::Find(Comm native) {
  const std::lock_guard lock(mutex_);
  const auto found = comms_.find(native);
  return found == comms_.end() ? nullptr : found->second;
}

bool Session::IsAllowed(const PreloadComm& comm, const CallFacts& call) {
  if (!rules_.is_default) return true;
  bool is_new = false;
  bool is_included = false;
  {
    const std::lock_guard lock(mutex_);
    is_included = scope_.Includes(comm.number(), comm.facts(), call);
    is_new = scope_.is_lost() && !std::exchange(has_told_scope_, true);
  }
  if (is_new) {
    Log(LogLevel::kWarn,
        "this process moves floats on several communicators of NCCL, or on one that lacks ranks of "
        "the job, so the default rule compresses nothing: name a communicator in "
        "ONEBIT_NCCL_RULES, such as comm=NAME:fp4");
  }
  return is_included;
}

void Session::Pass(Comm native, const CallFacts& call, Reason reason) {
  if (is_idle_) return;
  const std::shared_ptr<PreloadComm> comm = FindOrAdd(native);
  if (comm == nullptr) return;
  IsAllowed(*comm, call);
  Count(*comm, call, reason);
}

Session::Route Session::Choose(Comm native, const CallFacts& call, Stream stream) {
  if (is_idle_) return {};
  std::shared_ptr<PreloadComm> comm = FindOrAdd(native);
  if (comm == nullptr) return {};
  const bool is_allowed = IsAllowed(*comm, call);
  Decision decision = comm->Decide(call, is_allowed);
  // Ranks capture the same calls, so this does not part them.
  if (decision.reason == Reason::kCompressed && (!comm->can_compress() || IsCaptured(stream))) {
    decision.reason = Reason::kForbidden;
  }
  if (decision.reason == Reason::kCompressed) {
    return {.comm = std::move(comm), .decision = std::move(decision)};
  }
  Count(*comm, call, decision.reason);
  return {};
}

void Session::Count(const PreloadComm& comm, const CallFacts& call, Reason reason) {
  if (!stats_file_.empty()) counts_.Count(comm.facts(), call, reason);
}

void Session::WriteReport() const {
  if (getpid() != process_) return;
  const std::string report = counts_.Report();
  const bool is_stderr = stats_file_ == "stderr";
  std::FILE* const file = is_stderr ? stderr : std::fopen(ExpandedPath(stats_file_).c_str(), "w");
  if (file == nullptr) {
    Log(LogLevel::kWarn, "ONEBIT_NCCL_STATS: %s cannot be written: %s", stats_file_.c_str(),
        std::strerror(errno));
    return;
  }
  const char* const rank = SettingOf("RANK");
  std::fprintf(file, "onebit: calls of NCCL in process %d%s%s\n%s", static_cast<int>(process_),
               *rank == '\0' ? "" : ", rank ", rank, report.empty() ? "none\n" : report.c_str());
  if (!is_stderr) std::fclose(file);
}

}  // namespace onebit::preload
