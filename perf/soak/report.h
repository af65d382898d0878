// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What a soak says in the end: to people, and to scripts as JSON.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "perf/soak/options.h"
#include "perf/soak/soak.h"

namespace onebit::soak {

std::string Summarize(const SoakOptions& options, const SoakResult& result);

// `error` is "" where everything was right.
nlohmann::ordered_json ToJson(const SoakOptions& options, const SoakResult& result,
                              const std::string& error);

}  // namespace onebit::soak
