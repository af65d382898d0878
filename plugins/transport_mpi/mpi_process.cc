// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The start of MPI, its thread level, and the parked channels.
#include "plugins/transport_mpi/mpi_process.h"

#include "plugins/common/host_identity.h"
#include "plugins/transport_mpi/channel.h"
#include "plugins/transport_mpi/launcher.h"

namespace onebit::mpi {
namespace {

const char* LevelName(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    default:
      return "MPI_THREAD_MULTIPLE";
  }
}

bool IsFinalized() {
  int is_finalized = 0;
  MPI_Finalized(&is_finalized);
  return is_finalized != 0;
}

}  // namespace

std::string ErrorText(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return "unknown MPI error";
  return {text, static_cast<size_t>(length)};
}

MpiProcess& MpiProcess::Get() {
  static auto* process = new MpiProcess;
  return *process;
}

onebitResult_t MpiProcess::Start(const plugin::BaseContext& context) {
  const std::lock_guard lock(mutex_);
  if (IsFinalized()) {
    context.Warn("MPI_Finalize was called already, and MPI starts only once in a process");
    return onebitInvalidUsage;
  }
  if (is_started_) return onebitSuccess;
  int is_initialized = 0;
  MPI_Initialized(&is_initialized);
  if (is_initialized == 0) {
    const onebitResult_t result = Init(context);
    if (result != onebitSuccess) return result;
  }
  int code = MPI_Query_thread(&thread_level_);
  if (code == MPI_SUCCESS) code = MPI_Comm_rank(MPI_COMM_WORLD, &world_rank_);
  if (code == MPI_SUCCESS) code = MPI_Comm_size(MPI_COMM_WORLD, &world_size_);
  if (code != MPI_SUCCESS) {
    context.Warn("MPI does not report its thread level and ranks: %s", ErrorText(code).c_str());
    return onebitSystemError;
  }
  if (const std::string problem = WrongLauncher(world_size_); !problem.empty()) {
    context.Warn("%s", problem.c_str());
    return onebitInvalidUsage;
  }
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(version, &length);
  library_ = plugin::HashOf(version, static_cast<uint64_t>(length), 5);
  HookFinalize();
  is_started_ = true;
  return onebitSuccess;
}

onebitResult_t MpiProcess::Init(const plugin::BaseContext& context) {
  if (!HasLauncher()) {
    context.Warn("this process was not started by an MPI launcher: use %s", kLauncherName);
    return onebitInvalidUsage;
  }
  int provided = MPI_THREAD_SINGLE;
  const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  if (code != MPI_SUCCESS) {
    context.Warn("MPI_Init_thread failed: %s", ErrorText(code).c_str());
    return onebitSystemError;
  }
  // We started MPI, so nobody else has set a handler. An application's handler is left alone: see
  // errors_return.h.
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  on_exit(AtExit, this);
  return onebitSuccess;
}

bool MpiProcess::IsUsableHere() const {
  if (IsFinalized()) return false;
  if (thread_level_ >= MPI_THREAD_SERIALIZED) return true;
  int is_main = 0;
  MPI_Is_thread_main(&is_main);
  return is_main != 0;
}

onebitResult_t MpiProcess::CheckThread(const plugin::BaseContext& context) const {
  if (IsUsableHere()) return onebitSuccess;
  if (IsFinalized()) {
    context.Warn("MPI_Finalize was called while the communicator was in use");
  } else {
    context.Warn(
        "MPI was initialised with %s, so only the thread that initialised it may make calls; calls "
        "on other threads need MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE",
        LevelName(thread_level_));
  }
  return onebitInvalidUsage;
}

void MpiProcess::Park(std::unique_ptr<Channel> channel) {
  const std::lock_guard lock(mutex_);
  parked_.push_back(std::move(channel));
  open_channels_.fetch_sub(1, std::memory_order_relaxed);
}

void MpiProcess::PollParked() {
  if (!IsUsableHere()) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(parked_, [](const auto& channel) { return channel->TryEnd(); });
}

}  // namespace onebit::mpi
