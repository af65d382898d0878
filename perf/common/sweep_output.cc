// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/sweep_output.h"

#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "perf/common/standard_output.h"
#include "perf/common/sweep_text.h"

namespace onebit::perf {

SweepOutput::SweepOutput(std::string_view tool, bool is_speaker, const SweepFlags& flags)
    : tool_(tool), is_speaker_(is_speaker), flags_(flags), progress_(is_speaker) {
  if (is_speaker_ && !flags.json_path.empty()) file_.emplace(flags.json_path);
}

void SweepOutput::Begin(const RunFacts& facts, std::vector<std::string> arguments) {
  if (!is_speaker_) return;
  if (file_) {
    json_.emplace(facts, std::move(arguments));
    Print(fmt::format("# Writing JSON output to {}\n", file_->path()));
  }
  Print(HeaderText(tool_, flags_, facts));
}

void SweepOutput::ShowProgress(size_t bytes, std::string_view doing) {
  progress_.Show(fmt::format("{}: {} bytes: {}", tool_, bytes, doing));
}

void SweepOutput::AddRow(const Row& row) {
  if (!is_speaker_) return;
  progress_.Clear();
  // First, because the report goes on after an error of what follows.
  if (json_) json_->AddRow(row);
  if (json_ && !row.problem.empty()) json_->AddError(row.problem);
  wrong_ += row.out_of_place.wrong.value_or(0) + row.in_place.wrong.value_or(0);
  for (const Measurement* measurement : {&row.out_of_place, &row.in_place}) {
    if (!measurement->seconds) continue;
    bus_gbps_sum_ += measurement->bandwidth.bus_gbps;
    ++bus_gbps_count_;
  }
  Print(RowText(row));
  if (!row.problem.empty()) fmt::print(stderr, "{}: {}\n", tool_, row.problem);
}

void SweepOutput::ReportSent(std::span<const SentTotal> ranks) {
  if (is_speaker_) Print(SentText(ranks));
}

void SweepOutput::Finish() {
  Write();
  if (is_speaker_) Print(FooterText(tool_, wrong_, average_bus_gbps()));
}

void SweepOutput::Fail(const std::string& error) {
  if (json_) json_->AddError(error);
  Write();
}

void SweepOutput::Write() {
  if (json_) file_->Write(std::move(*json_).Finish(wrong_, average_bus_gbps()));
}

}  // namespace onebit::perf
