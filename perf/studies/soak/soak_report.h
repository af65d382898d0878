// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The result of a soak as text and as JSON.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "perf/studies/soak/soak.h"
#include "perf/studies/soak/soak_options.h"

namespace onebit::soak {

std::string Summarize(const SoakOptions& options, const SoakResult& result);

// `error` is "" if everything was right.
nlohmann::ordered_json ToJson(const SoakOptions& options, const SoakResult& result,
                              const std::string& error);

}  // namespace onebit::soak
