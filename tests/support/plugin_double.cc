// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A test double of a transport plugin: complete enough to be found, checked and started, and wrong
// in whatever way the build asks for. The build defines DOUBLE_NAME, DOUBLE_VERSION, DOUBLE_SYMBOL
// and DOUBLE_DEFAULT.
#include <onebit/transport.h>

namespace {

constexpr onebitTransportSetting kSetting{.name = "ONEBIT_FAKE_SPEED",
                                          .kind = onebitSettingText,
                                          .values = "text",
                                          .defaultValue = DOUBLE_DEFAULT,
                                          .help = "Speed of flight."};

onebitResult_t Init(const onebitTransportHost*, void** context) {
  *context = nullptr;
  return onebitSuccess;
}

onebitResult_t GetProperties(void*, onebitTransportProperties* properties) {
  properties->name = DOUBLE_NAME;
  properties->hasHostFace = 1;
  properties->settings = &kSetting;
  properties->settingCount = 1;
  properties->settingsBytes = sizeof(const char*);
  return onebitSuccess;
}

constexpr onebitTransport kTable{.structSize = sizeof(onebitTransport),
                                 .abiVersion = DOUBLE_VERSION,
                                 .init = Init,
                                 .getProperties = GetProperties};

}  // namespace

extern "C" [[gnu::visibility("default")]] const onebitTransport* DOUBLE_SYMBOL() { return &kTable; }
