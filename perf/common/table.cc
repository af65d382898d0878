// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Says what is run, and where, as nccl-tests does.
#include "perf/common/table.h"

#include <fmt/format.h>

namespace onebit::perf {
namespace {

std::string LibraryVersion() {
  int version = 0;
  if (onebitGetVersion(&version) != onebitSuccess) return "?";
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace

std::string HeaderText(std::string_view tool, const Options& options,
                       std::span<const RankPlace> places) {
  std::string text =
      fmt::format("# onebit version {}\n# Collective test starting: {}\n", LibraryVersion(), tool);
  text += ParametersText(options, options.ranks.threads);
  text += fmt::format("# mode: {} transport: {} nranks: {}", ModeName(options.mode),
                      options.transport, places.size());
  if (options.is_compressed()) {
    text += fmt::format(
        " scale: {} block: {}", options.scale_rule == onebitScaleL1 ? "l1" : "l2",
        options.block == ONEBIT_BLOCK_TENSOR ? "tensor" : fmt::format("{}", options.block));
  }
  text += fmt::format("\n#\n# Using devices\n{}#\n",
                      options.ranks.is_one_rank() ? ProcessesText(places) : ThreadsText(places));
  text += ColumnsText();
  return text;
}

}  // namespace onebit::perf
