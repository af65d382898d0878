// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A transport with faults as a plugin, so that any program can run over it. FAULTY_NAME is its
// name, FAULTY_SETTING the setting that says the fault. Its context is a FaultyContext.
#include "tests/support/faulty_plugin.h"

#include "tests/support/faulty_functions.h"

namespace onebit::testing {
namespace {

const onebitTransport* Inner() {
  static const onebitTransport* inner = InnerTransport();
  return inner;
}

int IsFault(const char* text) { return ParseFault(text).has_value() ? 1 : 0; }

constexpr onebitTransportSetting kSetting{.name = FAULTY_SETTING,
                                          .type = "fault, as \"kill rank=2 exchange=1 message=5\"",
                                          .defaultValue = "none",
                                          .help = "What goes wrong with one message of one rank.",
                                          .accepts = IsFault};

onebitResult_t Init(const onebitTransportHost* host, void** context) {
  if (Inner() == nullptr) return onebitSystemError;
  const char* text = host->setting(FAULTY_SETTING);
  const auto fault = ParseFault(text == nullptr ? kSetting.defaultValue : text);
  if (!fault) return onebitInvalidUsage;
  const onebitResult_t result = StartFaulty(Inner(), host, context);
  if (result != onebitSuccess) return result;
  auto* faulty = static_cast<FaultyContext*>(*context);
  faulty->faults.Arm(*fault);
  if (fault->kind != Fault::Kind::kNone) faulty->only_comm = fault->comm;
  return onebitSuccess;
}

// Settings of the transport inside are declared by that transport.
onebitResult_t GetProperties(void* context, onebitTransportProperties* properties) {
  if (Inner() == nullptr) return onebitSystemError;
  void* inner = context == nullptr ? nullptr : static_cast<FaultyContext*>(context)->inner_context;
  const onebitResult_t result = Inner()->getProperties(inner, properties);
  properties->name = FAULTY_NAME;
  properties->settings = &kSetting;
  properties->settingCount = 1;
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
