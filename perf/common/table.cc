// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Formats columns as nccl-tests does.
#include "perf/common/table.h"

#include <fmt/format.h>

#include "perf/common/elements.h"
#include "perf/common/host.h"

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

std::string MeasurementText(const Measurement& measurement) {
  return fmt::format("  {}  {}  {}  {:>6}", Fit(measurement.seconds * 1e6, 7),
                     Fit(measurement.bandwidth.alg_gbps, 6), Fit(measurement.bandwidth.bus_gbps, 6),
                     measurement.wrong ? fmt::format("{}", *measurement.wrong) : "N/A");
}

std::string OptionalText(const std::optional<double>& value, int width) {
  return value ? Fit(*value, width) : fmt::format("{:>{}}", "N/A", width);
}

std::string LibraryVersion() {
  int version = 0;
  if (onebitGetVersion(&version) != onebitSuccess) return "?";
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
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

// One line for the threads of a process, or one for each process.
std::string PlacesText(const Options& options, std::span<const RankPlace> places) {
  std::string text;
  const auto add = [&text](const std::string& ranks, const RankPlace& place) {
    text += fmt::format("#  {} Pid {:6} on {:>10} host memory, {}\n", ranks, place.pid, place.host,
                        ProcessorName());
  };
  if (!options.ranks.is_one_rank()) {
    add(fmt::format("Ranks 0-{}", places.size() - 1), places.front());
    return text;
  }
  for (size_t rank = 0; rank < places.size(); ++rank) {
    add(fmt::format("Rank {:2}", rank), places[rank]);
  }
  return text;
}

}  // namespace

std::string HeaderText(std::string_view tool, const Options& options,
                       std::span<const RankPlace> places) {
  const SweepRange& sweep = options.sweep;
  const bool has_factor = sweep.step_factor > 1;
  std::string text =
      fmt::format("# onebit version {}\n# Collective test starting: {}\n", LibraryVersion(), tool);
  text += fmt::format(
      "# nThread {} minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} validation: "
      "{}\n",
      options.ranks.threads, sweep.min_bytes, sweep.max_bytes,
      has_factor ? sweep.step_factor : sweep.step_bytes, has_factor ? "factor" : "bytes",
      options.warmup_iterations, options.iterations, options.checks);
  text += fmt::format("# mode: {} transport: {} nranks: {}", ModeName(options.mode),
                      options.transport, places.size());
  if (options.is_compressed()) {
    text += fmt::format(
        " scale: {} block: {}", options.scale_rule == onebitScaleL1 ? "l1" : "l2",
        options.block == ONEBIT_BLOCK_TENSOR ? "tensor" : fmt::format("{}", options.block));
  }
  text += fmt::format("\n#\n# Using devices\n{}#\n", PlacesText(options, places));
  text += fmt::format(
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

std::string RowText(const Row& row) {
  constexpr int kNoRoot = -1;
  return fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:6}{}{}  {:11}  {}  {:8.1e}  {}\n", row.bytes,
                     row.count, TypeName(row.type), OpName(row.op), kNoRoot,
                     MeasurementText(row.out_of_place), MeasurementText(row.in_place),
                     row.wire_bytes, OptionalText(row.ratio, 6), row.rel_error,
                     OptionalText(row.speedup_vs_dense, 7));
}

std::string FooterText(std::string_view tool, uint64_t wrong, double average_bus_gbps) {
  return fmt::format("# {:<20} : {} {}\n# {:<20} : {:g}\n#\n# Collective test concluded: {}\n",
                     "Out of bounds values", wrong, wrong == 0 ? "OK" : "FAILED",
                     "Avg bus bandwidth", average_bus_gbps, tool);
}

}  // namespace onebit::perf
