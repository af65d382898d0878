// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/faulty_transport.h"

#include <memory>
#include <stdexcept>

#include <gtest/gtest.h>

#include "plugins/transport_local/local_transport.h"
#include "plugins/transport_socket/socket_transport.h"
#include "transport/loader.h"
#include "transport/process_settings.h"

namespace onebit::testing {
namespace {

struct Options {
  const char* fault;
};

// The transports that carry the messages, and what they are called with faults.
struct OverLocal {
  static constexpr char kName[] = "faultylocal";
  static constexpr char kSettingName[] = "ONEBIT_FAULTYLOCAL_FAULT";
  static Result<const onebitTransport*> Functions() { return local::Functions(); }
};
struct OverSocket {
  static constexpr char kName[] = "faultysocket";
  static constexpr char kSettingName[] = "ONEBIT_FAULTYSOCKET_FAULT";
  static Result<const onebitTransport*> Functions() { return sockets::Functions(); }
};
struct OverUcx {
  static constexpr char kName[] = "faultyucx";
  static constexpr char kSettingName[] = "ONEBIT_FAULTYUCX_FAULT";
  static Result<const onebitTransport*> Functions() {
    return OpenPlugin("ucx", PluginFolders(PluginPathOf(EarlyEnvironment())));
  }
};

template <typename Inner>
Result<Transport> StartInner() {
  ONEBIT_ASSIGN_OR_RETURN(const onebitTransport* functions, Inner::Functions());
  return Transport::Start(functions);
}

// The functions of a transport whose endpoints are FaultyFrames.
template <typename Inner>
struct Faulty {
  static constexpr onebitTransportSetting kSetting{
      .name = Inner::kSettingName,
      .kind = onebitSettingText,
      .values = "fault, as \"kill rank=2 exchange=1 message=5\"",
      .defaultValue = "none",
      .help = "What goes wrong with one message of one rank."};

  static onebitResult_t Init(const onebitTransportHost* host, void** context) {
    const auto fault = ParseFault(static_cast<const Options*>(host->settings)->fault);
    if (!fault) return onebitInvalidUsage;
    auto inner = StartInner<Inner>();
    if (!inner.ok()) {
      host->log(onebitLogWarn, inner.status().text().c_str());
      return onebitSystemError;
    }
    auto created = std::make_unique<FaultyContext>();
    created->inner = std::move(inner).value();
    created->faults.Arm(*fault);
    if (fault->kind != Fault::Kind::kNone) created->only_comm = fault->comm;
    *context = created.release();
    return onebitSuccess;
  }

  static onebitResult_t GetProperties(void* context, onebitTransportProperties* properties) {
    if (context != nullptr) *properties = static_cast<FaultyContext*>(context)->inner.properties();
    properties->name = Inner::kName;
    properties->settings = &kSetting;
    properties->settingCount = 1;
    properties->settingsBytes = sizeof(Options);
    return onebitSuccess;
  }

  static onebitResult_t Finalize(void* context) {
    const std::unique_ptr<FaultyContext> ending(static_cast<FaultyContext*>(context));
    return ending->inner.functions().finalize(ending->inner.context());
  }

  static const onebitTransport* Functions() {
    static const onebitTransport functions = [] {
      onebitTransport table = kFaultyFrameFunctions;
      table.init = Init;
      table.getProperties = GetProperties;
      table.finalize = Finalize;
      return table;
    }();
    return &functions;
  }
};

}  // namespace

FaultyTransport::FaultyTransport() {
  auto started = Transport::Start(Faulty<OverLocal>::Functions());
  if (!started.ok()) throw std::runtime_error(started.status().text());
  transport_ = std::move(started).value();
}

FaultyTransport::~FaultyTransport() {
  EXPECT_EQ(transport_.functions().finalize(transport_.context()), onebitSuccess)
      << "an endpoint was not closed";
}

void RegisterFaultyTransports() {
  Transport::Register(OverLocal::kName, Faulty<OverLocal>::Functions());
  Transport::Register(OverSocket::kName, Faulty<OverSocket>::Functions());
  Transport::Register(OverUcx::kName, Faulty<OverUcx>::Functions());
}

}  // namespace onebit::testing
