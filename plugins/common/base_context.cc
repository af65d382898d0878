// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/common/base_context.h"

#include <cstdarg>
#include <cstdio>

namespace onebit::plugin {
BaseContext::BaseContext(const onebitTransportHost& host, const char* name)
    : host_(host), name_(name) {}

void BaseContext::Warn(const char* format, ...) const {
  char text[512];
  const int used = std::snprintf(text, sizeof text, "%s: ", name_);
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text + used, sizeof text - static_cast<size_t>(used), format, arguments);
  va_end(arguments);
  host_.log(onebitLogWarn, text);
}

}  // namespace onebit::plugin
