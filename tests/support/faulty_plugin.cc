// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A faulty transport as a plugin, so that any program can use it. FAULTY_NAME is its name,
// FAULTY_SETTING the setting that describes the fault. Its context is a FaultyContext.
#include "tests/support/faulty_plugin.h"

#include "base/settings.h"
#include "tests/support/faulty_functions.h"
#include "transport/declared_settings.h"

namespace onebit::testing {
namespace {

const onebitTransport* Inner() {
  static const onebitTransport* inner = InnerTransport();
  return inner;
}

constexpr onebitTransportSetting kSetting{
    .name = FAULTY_SETTING,
    .kind = onebitSettingText,
    .values = "fault, as \"kill rank=2 exchange=1 message=5\"",
    .defaultValue = "none",
    .help = "What goes wrong with one message of one rank."};

struct Options {
  const char* fault;
};

onebitResult_t Init(const onebitTransportHost* host, void** context) {
  if (Inner() == nullptr) return onebitSystemError;
  const auto fault = ParseFault(static_cast<const Options*>(host->settings)->fault);
  if (!fault) return onebitInvalidUsage;
  // Declares the settings of the transport inside, which the library could not know otherwise.
  onebitTransportProperties properties{.structSize = sizeof properties};
  Inner()->getProperties(nullptr, &properties);
  const auto settings = SettingsForInit(properties, ProcessEnvironment());
  if (!settings.ok()) return onebitInvalidUsage;
  onebitTransportHost inner_host = *host;
  inner_host.settings = settings.value().data();
  const onebitResult_t result = StartFaulty(Inner(), &inner_host, context);
  if (result != onebitSuccess) return result;
  auto* faulty = static_cast<FaultyContext*>(*context);
  faulty->faults.Arm(*fault);
  if (fault->kind != Fault::Kind::kNone) faulty->only_comm = fault->comm;
  return onebitSuccess;
}

onebitResult_t GetProperties(void* context, onebitTransportProperties* properties) {
  if (Inner() == nullptr) return onebitSystemError;
  void* inner = context == nullptr ? nullptr : static_cast<FaultyContext*>(context)->inner_context;
  const onebitResult_t result = Inner()->getProperties(inner, properties);
  properties->name = FAULTY_NAME;
  properties->settings = &kSetting;
  properties->settingCount = 1;
  properties->settingsBytes = sizeof(Options);
  return result;
}

}  // namespace
}  // namespace onebit::testing

extern "C" [[gnu::visibility("default")]] const onebitTransport* onebitTransportGet(void) {
  static const onebitTransport functions = [] {
    onebitTransport table = onebit::testing::kFaultyFunctions;
    table.init = onebit::testing::Init;
    table.getProperties = onebit::testing::GetProperties;
    return table;
  }();
  return &functions;
}
