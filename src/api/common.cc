// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Results, versions, log and settings of the C API.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>

#include "api/handles.h"
#include "base/log.h"
#include "transport/process_settings.h"

namespace onebit {
namespace {

// Holds the text of a communicator's error until the thread's next call.
thread_local std::string returned_text;  // NOLINT: the C API promises it per thread

static_assert(static_cast<int>(Code::kMismatch) == onebitMismatch);
static_assert(static_cast<int>(Code::kCorrupt) == onebitCorrupt);
static_assert(static_cast<int>(Code::kPeerLost) == onebitPeerLost);
static_assert(static_cast<int>(Code::kNotAuthenticated) == onebitNotAuthenticated);
static_assert(static_cast<int>(Code::kDetached) == onebitDetached);
static_assert(static_cast<int>(Code::kAborted) == onebitAborted);
static_assert(static_cast<int>(Code::kOutOfMemory) == onebitOutOfMemory);
static_assert(static_cast<int>(Code::kTimeout) == onebitTimeout);
static_assert(static_cast<int>(Code::kInvalidArgument) == onebitInvalidArgument);
static_assert(static_cast<int>(LogLevel::kTrace) == onebitLogTrace);

}  // namespace

onebitDataType_t ApiTypeOf(kernels::DataType type) {
  switch (type) {
    case kernels::DataType::kF32:
      return onebitFloat32;
    case kernels::DataType::kF16:
      return onebitFloat16;
    case kernels::DataType::kBf16:
      return onebitBfloat16;
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
  return onebitFloat32;
}

std::optional<kernels::DataType> TypeOf(onebitDataType_t type) {
  switch (type) {
    case onebitFloat16:
      return kernels::DataType::kF16;
    case onebitFloat32:
      return kernels::DataType::kF32;
    case onebitBfloat16:
      return kernels::DataType::kBf16;
    case onebitUint8:
      return kernels::DataType::kU8;
    case onebitInt32:
      return kernels::DataType::kI32;
    case onebitInt64:
      return kernels::DataType::kI64;
    case onebitFloat64:
      return kernels::DataType::kF64;
  }
  return std::nullopt;
}

Status CopyStats(const void* ours, size_t our_size, void* theirs) {
  size_t their_size;
  std::memcpy(&their_size, theirs, sizeof(their_size));
  if (their_size < 2 * sizeof(size_t)) {
    return Error(Code::kInvalidArgument,
                 "stats->size is {}: set it to sizeof(*stats) before the call", their_size);
  }
  const size_t size = std::min(our_size, their_size);
  std::memcpy(static_cast<char*>(theirs) + sizeof(size_t),
              static_cast<const char*>(ours) + sizeof(size_t), size - sizeof(size_t));
  return OkStatus();
}

}  // namespace onebit

using onebit::Code;
using onebit::Error;
using onebit::Guard;
using onebit::OkStatus;
using onebit::Status;

const char* onebitGetErrorString(onebitResult_t result) {
  switch (result) {
    case onebitSuccess:
      return "no error";
    case onebitUnhandledCudaError:
      return "unhandled CUDA error";
    case onebitSystemError:
      return "system error";
    case onebitInternalError:
      return "internal error";
    case onebitInvalidArgument:
      return "invalid argument";
    case onebitInvalidUsage:
      return "invalid usage";
    case onebitRemoteError:
      return "another rank failed";
    case onebitInProgress:
      return "in progress";
    case onebitTimeout:
      return "timed out";
    case onebitMismatch:
      return "mismatch";
    case onebitCorrupt:
      return "corrupt data";
    case onebitPeerLost:
      return "peer lost";
    case onebitNotAuthenticated:
      return "not authenticated";
    case onebitDetached:
      return "compressor has no communicator";
    case onebitAborted:
      return "communicator aborted";
    case onebitOutOfMemory:
      return "out of memory";
  }
  return "unknown result code";
}

const char* onebitGetLastError(onebitComm_t comm) {
  if (comm == nullptr || !comm->origin.is_here()) return onebit::LastErrorText();
  try {
    onebit::returned_text = comm->comm->FindFailure().text();
  } catch (const std::bad_alloc&) {
    return "out of memory";
  }
  return onebit::returned_text.c_str();
}

onebitResult_t onebitGetVersion(int* version) {
  return Guard([&]() -> Status {
    if (version == nullptr) return Error(Code::kInvalidArgument, "version is NULL");
    *version = ONEBIT_VERSION_CODE;
    return OkStatus();
  });
}

namespace {

// The application's callback, called through the C++ log. The log's own lock guards it: SetLogSink
// returns only when no line is being written.
struct CallbackSlot {
  onebitLogCallback_t callback = nullptr;
  void* argument = nullptr;
};

void ForwardLog(onebit::LogLevel level, const char* text, void* argument) {
  const auto* slot = static_cast<const CallbackSlot*>(argument);
  slot->callback(static_cast<onebitLogLevel_t>(level), text, slot->argument);
}

}  // namespace

onebitResult_t onebitSetLogCallback(onebitLogCallback_t callback, void* argument) {
  return Guard([&]() -> Status {
    static std::mutex mutex;  // one setter at a time
    static CallbackSlot slots[2];
    static int current = 0;
    std::lock_guard lock(mutex);
    if (callback == nullptr) {
      onebit::SetLogSink(nullptr, nullptr);
      return OkStatus();
    }
    current ^= 1;  // the log may use the current slot until SetLogSink returns
    slots[current] = {callback, argument};
    onebit::SetLogSink(ForwardLog, &slots[current]);
    return OkStatus();
  });
}

onebitResult_t onebitGetSetting(int index, onebitSetting_t* setting) {
  return Guard([&]() -> Status {
    if (setting == nullptr) return Error(Code::kInvalidArgument, "setting is NULL");
    ONEBIT_ASSIGN_OR_RETURN(const onebit::SettingsTable* table, onebit::ListedSettings());
    const auto& rows = table->rows;
    if (index < 0 || static_cast<size_t>(index) >= rows.size()) {
      return Error(Code::kInvalidArgument, "there is no setting {}: there are {}, counted from 0",
                   index, rows.size());
    }
    const onebit::SettingRow& row = rows[static_cast<size_t>(index)];
    *setting = {row.name, row.type.c_str(),  row.default_value,
                row.help, row.value.c_str(), row.is_set ? "environment" : "default"};
    return OkStatus();
  });
}

onebitResult_t onebitGetTransport(int index, const char** name) {
  return Guard([&]() -> Status {
    if (name == nullptr) return Error(Code::kInvalidArgument, "name is NULL");
    ONEBIT_TRY(onebit::ProcessSettings().status());
    // Never destroyed, because callers may keep the names.
    static const auto* names = new std::vector<std::string>(onebit::ListedTransports());
    if (index < 0 || static_cast<size_t>(index) >= names->size()) {
      return Error(Code::kInvalidArgument, "there is no transport {}: there are {}, counted from 0",
                   index, names->size());
    }
    *name = (*names)[static_cast<size_t>(index)].c_str();
    return OkStatus();
  });
}
