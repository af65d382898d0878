// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/faulty_transport.h"

#include <memory>
#include <stdexcept>

#include <gtest/gtest.h>

#include "plugins/transport_local/local_transport.h"
#include "transport/loader.h"
#include "transport/process_settings.h"

namespace onebit::testing {
namespace {

struct Options {
  const char* fault;
};

Result<Transport> StartInner(bool is_local) {
  if (is_local) return Transport::Start(local::Functions());
  ONEBIT_ASSIGN_OR_RETURN(const onebitTransport* functions,
                          OpenPlugin("ucx", PluginFolders(PluginPathOf(EarlyEnvironment()))));
  return Transport::Start(functions);
}

// The functions of a transport whose messages are kFaultyFunctions.
template <bool kIsLocal>
struct Faulty {
  static constexpr onebitTransportSetting kSetting{
      .name = kIsLocal ? "ONEBIT_FAULTYLOCAL_FAULT" : "ONEBIT_FAULTYUCX_FAULT",
      .kind = onebitSettingText,
      .values = "fault, as \"kill rank=2 exchange=1 message=5\"",
      .defaultValue = "none",
      .help = "What goes wrong with one message of one rank."};

  static onebitResult_t Init(const onebitTransportHost* host, void** context) {
    const auto fault = ParseFault(static_cast<const Options*>(host->settings)->fault);
    if (!fault) return onebitInvalidUsage;
    auto inner = StartInner(kIsLocal);
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
    properties->name = kIsLocal ? "faultylocal" : "faultyucx";
    properties->settings = &kSetting;
    properties->settingCount = 1;
    properties->settingsBytes = sizeof(Options);
    return onebitSuccess;
  }

  static onebitResult_t Finalize(void* context) {
    const std::unique_ptr<FaultyContext> ending(static_cast<FaultyContext*>(context));
    return ending->inner.functions().finalize(ending->inner.context());
  }

  static constexpr onebitTransport kFunctions{.structSize = sizeof(onebitTransport),
                                              .abiVersion = ONEBIT_TRANSPORT_ABI_VERSION,
                                              .init = Init,
                                              .getProperties = GetProperties,
                                              .finalize = Finalize};
};

}  // namespace

FaultyTransport::FaultyTransport() {
  auto started = Transport::Start(&Faulty<true>::kFunctions, &kFaultyFunctions);
  if (!started.ok()) throw std::runtime_error(started.status().text());
  transport_ = std::move(started).value();
}

FaultyTransport::~FaultyTransport() {
  EXPECT_EQ(transport_.functions().finalize(transport_.context()), onebitSuccess)
      << "an endpoint was not closed";
}

void RegisterFaultyTransports() {
  Transport::Register("faultylocal", &Faulty<true>::kFunctions, &kFaultyFunctions);
  Transport::Register("faultyucx", &Faulty<false>::kFunctions, &kFaultyFunctions);
}

}  // namespace onebit::testing
