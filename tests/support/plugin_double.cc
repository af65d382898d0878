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
  properties->hasFrameFace = 1;
  properties->settings = &kSetting;
  properties->settingCount = 1;
  properties->settingsBytes = sizeof(const char*);
  return onebitSuccess;
}

// Nobody opens an endpoint; the library checks that it could.
onebitResult_t GetLink(void*, int, const onebitTransportLink**) { return onebitInternalError; }
onebitResult_t SendFrame(void*, int, int, const void*, size_t, const void*, size_t) {
  return onebitInternalError;
}
onebitResult_t Progress(void*, int*) { return onebitInternalError; }
onebitResult_t Sleep(void*, uint64_t) { return onebitInternalError; }

constexpr onebitTransport kTable{.structSize = sizeof(onebitTransport),
                                 .abiVersion = DOUBLE_VERSION,
                                 .init = Init,
                                 .getProperties = GetProperties,
                                 .getLink = GetLink,
                                 .sendFrame = SendFrame,
                                 .progress = Progress,
                                 .sleep = Sleep};

}  // namespace

extern "C" [[gnu::visibility("default")]] const onebitTransport* DOUBLE_SYMBOL() { return &kTable; }
