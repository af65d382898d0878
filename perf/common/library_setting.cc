// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/library_setting.h"

#include "onebit/onebit.h"
#include "perf/common/tool_error.h"

namespace onebit::perf {

std::string SettingValue(std::string_view name) {
  onebitSetting_t setting;
  for (int index = 0;; ++index) {
    Check(onebitGetSetting(index, &setting), "onebitGetSetting");
    if (setting.name == name) return setting.value;
  }
}

}  // namespace onebit::perf
