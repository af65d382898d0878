// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Formats parameters and columns as nccl-tests does.
#include "perf/common/sweep_text.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "perf/common/seeded_elements.h"

namespace onebit::perf {
namespace {

// A number in `width` columns with as many of two decimals as fit.
std::string Fit(double value, int width) {
  int digits = 1;
  for (double limit = 10; value >= limit && digits < 20; limit *= 10) ++digits;
  const int room = width - 1 - digits;  // for decimals, after the point
  if (room >= 1) return fmt::format("{:{}.{}f}", value, width, room >= 2 ? 2 : 1);
  if (digits <= width) return fmt::format("{:{}.0f}", value, width);
  return fmt::format("{:{}.{}e}", value, width, width >= 7 ? 1 : 0);
}

std::string OptionalText(const std::optional<double>& value, int width) {
  return value ? Fit(*value, width) : fmt::format("{:>{}}", "N/A", width);
}

std::string OptionalText(const std::optional<uint64_t>& value, int width) {
  return value ? fmt::format("{:>{}}", *value, width) : fmt::format("{:>{}}", "N/A", width);
}

std::string MeasurementText(const Measurement& measurement) {
  std::optional<double> time_us, alg_gbps, bus_gbps;
  if (measurement.seconds) {
    time_us = *measurement.seconds * 1e6;
    alg_gbps = measurement.bandwidth.alg_gbps;
    bus_gbps = measurement.bandwidth.bus_gbps;
  }
  return fmt::format("  {}  {}  {}  {}", OptionalText(time_us, 7), OptionalText(alg_gbps, 6),
                     OptionalText(bus_gbps, 6), OptionalText(measurement.wrong, 6));
}

std::string ColumnLine(std::string_view size, std::string_view count, std::string_view type,
                       std::string_view op, std::string_view root, std::string_view time,
                       std::string_view bandwidth, std::string_view wrong) {
  const std::string half =
      fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", time, bandwidth == "name" ? "algbw" : bandwidth,
                  bandwidth == "name" ? "busbw" : bandwidth, wrong);
  return fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}{}{}", size, count, type, op, root, half,
                     half);
}

std::string RankInfoLine(const std::string& ranks, const RankInfo& info) {
  const std::string memory = info.cuda_device
                                 ? fmt::format("device {:2}, {}", *info.cuda_device, info.cuda_name)
                                 : "host memory, " + ProcessorName();
  return fmt::format("#  {} Pid {:6} on {:>10} {}\n", ranks, info.pid, info.host, memory);
}

// " hosts: 4x8" where 4 hosts have 8 ranks each, else " hosts: 4+2+1".
std::string HostsText(const std::vector<uint64_t>& ranks_by_host) {
  if (ranks_by_host.empty()) return "";
  const bool is_even = std::ranges::all_of(
      ranks_by_host, [&](uint64_t ranks) { return ranks == ranks_by_host.front(); });
  if (is_even) return fmt::format(" hosts: {}x{}", ranks_by_host.size(), ranks_by_host.front());
  return fmt::format(" hosts: {}", fmt::join(ranks_by_host, "+"));
}

std::string ParametersText(const SweepFlags& flags, const RunFacts& facts) {
  const SweepRange& sweep = flags.sweep;
  const bool has_factor = sweep.step_factor > 1;
  return fmt::format(
      "# nThread {} nGpus {} minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {}{} agg "
      "iters: 1 validation: {} graph: 0\n",
      facts.threads, facts.config.value("ngpus", 0), sweep.min_bytes, sweep.max_bytes,
      has_factor ? sweep.step_factor : sweep.step_bytes, has_factor ? "factor" : "bytes",
      flags.warmup_iterations, flags.row_seconds ? "at most " : "", flags.iterations, flags.checks);
}

std::string ColumnsText() {
  std::string text = fmt::format(
      "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}           out-of-place                       in-place "
      "  "
      "                     wire\n",
      "", "", "", "", "");
  text += ColumnLine("size", "count", "type", "redop", "root", "time", "name", "#wrong") +
          fmt::format("  {:>11}  {:>6}  {:>8}  {:>7}\n", "sent", "ratio", "error", "speedup");
  text += ColumnLine("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "") +
          fmt::format("  {:>11}  {:>6}  {:>8}  {:>7}\n", "(B/rank)", "", "(rel.)", "(dense)");
  return text;
}

}  // namespace

std::string HeaderText(std::string_view tool, const SweepFlags& flags, const RunFacts& facts) {
  return fmt::format(
      "# {}\n# Collective test starting: {}\n{}# mode: {} transport: {} nranks: {}{}{}\n#\n"
      "# Using devices\n{}#\n{}",
      facts.system, tool, ParametersText(flags, facts), facts.rows.mode, facts.rows.transport,
      facts.rows.ranks, HostsText(facts.ranks_by_host), facts.details, facts.devices,
      ColumnsText());
}

std::string ThreadsText(std::span<const RankInfo> infos) {
  if (infos.front().cuda_device) return ProcessesText(infos);  // each has a device
  return RankInfoLine(fmt::format("Ranks 0-{}", infos.size() - 1), infos.front());
}

std::string ProcessesText(std::span<const RankInfo> infos) {
  std::string text;
  for (size_t rank = 0; rank < infos.size(); ++rank) {
    text += RankInfoLine(fmt::format("Rank {:2}", rank), infos[rank]);
  }
  return text;
}

std::string RowText(const Row& row) {
  return fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:6}{}{}  {}  {}  {:8.1e}  {}\n", row.bytes,
                     row.count, TypeName(row.type), OpName(row.op), row.root,
                     MeasurementText(row.out_of_place), MeasurementText(row.in_place),
                     OptionalText(row.wire_bytes, 11), OptionalText(row.ratio, 6), row.rel_error,
                     OptionalText(row.speedup_vs_dense, 7));
}

std::string FooterText(std::string_view tool, uint64_t wrong, double average_bus_gbps) {
  return fmt::format("# {:<20} : {} {}\n# {:<20} : {:g}\n#\n# Collective test concluded: {}\n",
                     "Out of bounds values", wrong, wrong == 0 ? "OK" : "FAILED",
                     "Avg bus bandwidth", average_bus_gbps, tool);
}

}  // namespace onebit::perf
