// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/run_facts.h"

#include <fmt/format.h>

#include "perf/common/sweep_text.h"
#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

using Json = nlohmann::ordered_json;

int LibraryVersion() {
  int version = 0;
  Check(onebitGetVersion(&version), "onebitGetVersion");
  return version;
}

const char* ScaleName(const Options& options) {
  return options.scale_rule == onebitScaleL1 ? "l1" : "l2";
}

std::string BlockText(const Options& options) {
  return options.block == ONEBIT_BLOCK_TENSOR ? "tensor" : fmt::format("{}", options.block);
}

Json ConfigOf(const Options& options, std::span<const RankInfo> infos) {
  Json config = ConfigJson(options, options.ranks.threads);
  config["ngpus"] = options.device.is_cuda ? 1 : 0;
  config["blocking_collectives"] = BoolText(!options.device.is_cuda);
  config["scale"] = ScaleName(options);
  if (options.block == ONEBIT_BLOCK_TENSOR) {
    config["block"] = "tensor";
  } else {
    config["block"] = options.block;
  }
  config["device"] = options.device.name();
  if (!infos.empty()) config["device_name"] = DeviceNameOf(infos.front());
  config["devices"] = DevicesJson(infos);
  return config;
}

}  // namespace

std::string LibraryVersionText() {
  const int version = LibraryVersion();
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

RunFacts FactsOfLibrary(const Options& options, std::span<const RankInfo> infos) {
  RunFacts facts;
  facts.system = "onebit version " + LibraryVersionText();
  facts.version = {{"onebit_version", LibraryVersion()}};
  facts.config = ConfigOf(options, infos);
  facts.rows = {.mode = ModeName(options.mode),
                .transport = options.transport,
                .device = options.device.name(),
                .ranks = infos.size(),
                .is_dense = !options.is_compressed()};
  facts.threads = options.ranks.threads;
  if (options.is_compressed()) {
    facts.details = fmt::format(" scale: {} block: {}", ScaleName(options), BlockText(options));
  }
  if (!infos.empty()) {
    facts.devices = options.ranks.is_one_rank() ? ProcessesText(infos) : ThreadsText(infos);
  }
  return facts;
}

}  // namespace onebit::perf
