// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/nccl_preload/preload_session.h"

#include <dlfcn.h>
#include <unistd.h>

#include <charconv>
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

// The name in a configuration, if it is as long and as new as the name needs.
std::string NameIn(const Config* config) {
  constexpr unsigned kMagic = 0xcafebeef;
  if (config == nullptr || config->size < sizeof *config || config->magic != kMagic ||
      config->version < kFirstVersionWithName || config->comm_name == nullptr) {
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

Session::Session() : stats_file_(SettingOf("ONEBIT_NCCL_STATS")), scope_(JobRanks()) {
  if (const auto error = ParseRules(SettingOf("ONEBIT_NCCL_RULES"), &rules_)) {
    Log(LogLevel::kWarn, "ONEBIT_NCCL_RULES, %s: nothing is compressed", error->c_str());
  }
  most_elements_ = kMostElements;
  if (!stats_file_.empty()) {
    std::atexit([] { Get().WriteReport(); });
  }
  Log(LogLevel::kInfo, "between this program and NCCL: %s",
      rules_.is_off() ? "no rules, so calls pass as they are" : SettingOf("ONEBIT_NCCL_RULES"));
}

void Session::Add(Comm native, const Config* config) {
  static RealFunction<Result(Comm, int*)> count("ncclCommCount");
  int ranks = 0;
  if (native == nullptr || count(native, &ranks) != kSuccess) return;
  std::shared_ptr<PreloadComm> comm;
  {
    const std::lock_guard lock(mutex_);
    comm = std::make_shared<PreloadComm>(rules_, next_number_++, NameIn(config), ranks,
                                         most_elements_);
    comms_[native] = comm;
  }
  if (!rules_.is_off() && ranks > 1) comm->Join(native);
}

void Session::Remove(Comm native) {
  std::shared_ptr<PreloadComm> removed;
  const std::lock_guard lock(mutex_);
  const auto found = comms_.find(native);
  if (found == comms_.end()) return;
  removed = std::move(found->second);
  comms_.erase(found);
}

std::shared_ptr<PreloadComm> Session::Find(Comm native) {
  const std::lock_guard lock(mutex_);
  const auto found = comms_.find(native);
  return found == comms_.end() ? nullptr : found->second;
}

void Session::Abort(Comm native) {
  if (const std::shared_ptr<PreloadComm> comm = Find(native)) comm->Abort();
}

Result Session::AsyncError(Comm native) {
  const std::shared_ptr<PreloadComm> comm = Find(native);
  return comm == nullptr ? kSuccess : comm->AsyncError();
}

bool Session::IsAllowed(const PreloadComm& comm, const CallFacts& call) {
  if (!rules_.is_default) return true;
  const std::lock_guard lock(mutex_);
  const bool is_included = scope_.Includes(comm.number(), comm.facts(), call);
  if (scope_.is_lost() && !std::exchange(has_told_scope_, true)) {
    Log(LogLevel::kWarn,
        "this process moves floats on several communicators of NCCL, so the default rule "
        "compresses nothing: name a communicator in ONEBIT_NCCL_RULES, such as comm=NAME:fp4");
  }
  return is_included;
}

void Session::Pass(Comm native, const CallFacts& call, Reason reason) {
  const std::shared_ptr<PreloadComm> comm = Find(native);
  if (comm == nullptr) return;
  IsAllowed(*comm, call);
  counts_.Count(comm->facts(), call, reason);
}

Session::Route Session::Choose(Comm native, const CallFacts& call, Stream stream) {
  std::shared_ptr<PreloadComm> comm = Find(native);
  if (comm == nullptr) return {};
  const bool is_allowed = IsAllowed(*comm, call);
  Decision decision = comm->Decide(call, is_allowed);
  // Ranks capture the same calls, so this does not part them.
  if (decision.reason == Reason::kCompressed && (!comm->can_compress() || IsCaptured(stream))) {
    decision.reason = Reason::kForbidden;
  }
  counts_.Count(comm->facts(), call, decision.reason);
  if (decision.reason != Reason::kCompressed) return {};
  return {.comm = std::move(comm), .decision = std::move(decision)};
}

void Session::WriteReport() const {
  const std::string report = counts_.Report();
  const bool is_stderr = stats_file_ == "stderr";
  std::FILE* const file = is_stderr ? stderr : std::fopen(ExpandedPath(stats_file_).c_str(), "w");
  if (file == nullptr) {
    Log(LogLevel::kWarn, "ONEBIT_NCCL_STATS: %s cannot be written: %s", stats_file_.c_str(),
        std::strerror(errno));
    return;
  }
  std::fputs(report.empty() ? "no calls of NCCL\n" : report.c_str(), file);
  if (!is_stderr) std::fclose(file);
}

}  // namespace onebit::preload
