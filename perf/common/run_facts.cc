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

// Levels of compressed calls: those that are wanted if some of the ranks share a host, but not all.
// 0: the library decides for each row.
int LevelsOf(const CodecChoice& choice, std::span<const RankInfo> infos) {
  const size_t hosts = RanksByHost(infos).size();
  return hosts > 1 && hosts < infos.size() ? choice.levels : 1;
}

// "levels: 1 codec: sign scale: l2 block: 4096".
std::string CodecText(const CodecChoice& choice, int levels) {
  const std::string scale =
      choice.has_scale_rule() ? fmt::format(" scale: {}", choice.scale_name()) : "";
  const std::string sparse =
      choice.is_sparse() ? fmt::format(" k: {} values: {}", choice.k, choice.values_name()) : "";
  const std::string levels_text = levels == 0 ? "auto" : fmt::format("{}", levels);
  return fmt::format(" levels: {} codec: {}{} block: {}{}", levels_text, choice.codec_name(), scale,
                     choice.block_text(), sparse);
}

Json CodecJson(const CodecChoice& choice) {
  return choice.is_compressed() ? Json(choice.codec_name()) : Json(nullptr);
}

Json BlockJson(const CodecChoice& choice) {
  return choice.block == ONEBIT_BLOCK_TENSOR ? Json("tensor") : Json(choice.block);
}

Json ConfigOf(const Options& options, std::span<const RankInfo> infos) {
  Json config = ConfigJson(options, options.ranks.threads);
  config["ngpus"] = options.device.is_cuda ? 1 : 0;
  config["blocking_collectives"] = BoolText(!options.device.is_cuda || options.is_blocking);
  config["codec"] = CodecJson(options);
  config["scale"] = options.has_scale_rule() ? Json(options.scale_name()) : Json(nullptr);
  config["block"] = BlockJson(options);
  if (options.is_sparse()) {
    config["k"] = options.k;
    config["values"] = options.values_name();
  }
  if (options.is_compressed()) config["levels"] = LevelsOf(options, infos);
  config["device"] = options.device.name();
  if (!infos.empty()) config["device_name"] = DeviceNameOf(infos.front());
  config["hosts"] = RanksByHost(infos);
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
  facts.rows = {.mode = options.mode_name(),
                .codec = CodecJson(options),
                .block = options.is_compressed() ? BlockJson(options) : Json(nullptr),
                .transport = options.transport,
                .device = options.device.name(),
                .ranks = infos.size(),
                .is_dense = !options.is_compressed()};
  facts.threads = options.ranks.threads;
  facts.ranks_by_host = RanksByHost(infos);
  if (options.is_compressed()) {
    facts.details = CodecText(options, LevelsOf(options, infos));
  }
  if (!infos.empty()) {
    facts.devices = options.ranks.is_one_rank() ? ProcessesText(infos) : ThreadsText(infos);
  }
  return facts;
}

}  // namespace onebit::perf
