// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Header, footer and report of a sweep.
#include "perf/common/sweep_output.h"

#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "perf/common/table.h"

namespace onebit::perf {

SweepOutput::SweepOutput(const Options& options, std::string_view tool,
                         std::span<const RankPlace> places, std::vector<std::string> arguments)
    : tool_(tool), is_speaker_(options.ranks.is_speaker()) {
  if (!is_speaker_) return;
  if (!options.json_path.empty()) {
    file_.emplace(options.json_path);
    json_.emplace(options, places, std::move(arguments));
    fmt::print("# Writing JSON output to {}\n", file_->path());
  }
  fmt::print("{}", HeaderText(tool_, options, places));
  std::fflush(stdout);
}

void SweepOutput::ReportSent(std::span<const SentTotal> ranks) {
  if (is_speaker_) fmt::print("{}", SentText(ranks));
}

void SweepOutput::Finish(uint64_t wrong, double bus_gbps) {
  if (is_speaker_) fmt::print("{}", FooterText(tool_, wrong, bus_gbps));
  Write(wrong, bus_gbps);
}

void SweepOutput::Fail(const std::string& error, uint64_t wrong, double bus_gbps) {
  if (json_) json_->AddError(error);
  Write(wrong, bus_gbps);
}

void SweepOutput::Write(uint64_t wrong, double bus_gbps) {
  if (json_) file_->Write(std::move(*json_).Finish(wrong, bus_gbps));
}

}  // namespace onebit::perf
