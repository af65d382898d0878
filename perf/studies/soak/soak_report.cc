// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Texts and JSON of a soak.
#include "perf/studies/soak/soak_report.h"

#include <fmt/format.h>

namespace onebit::soak {
namespace {

using Json = nlohmann::ordered_json;

double InMiB(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// Threads share the process of the first rank.
bool HasUsage(const RankFigures& figures) { return figures.end.resident_bytes > 0; }

int64_t GrowthOf(const RankFigures& figures) {
  return static_cast<int64_t>(figures.end.resident_bytes) -
         static_cast<int64_t>(figures.warmed_up.resident_bytes);
}

uint64_t Total(const SoakResult& result, uint64_t RankFigures::*member) {
  uint64_t total = 0;
  for (const RankFigures& figures : result.by_rank) total += figures.*member;
  return total;
}

Json RankJson(const SoakResult& result, size_t rank) {
  const RankFigures& figures = result.by_rank[rank];
  Json json = {{"rank", rank},
               {"pid", figures.pid},
               {"logical_bytes", figures.logical_bytes},
               {"wire_bytes", figures.wire_bytes}};
  if (!HasUsage(figures)) return json;
  json["rss_start"] = figures.start.resident_bytes;
  json["heap_start"] = figures.start.heap_bytes;
  json["rss_warmed_up"] = nullptr;
  json["rss_end"] = figures.end.resident_bytes;
  json["heap_end"] = figures.end.heap_bytes;
  json["rss_growth"] = nullptr;
  json["descriptors_start"] = figures.start.descriptors;
  json["descriptors_warmed_up"] = nullptr;
  json["descriptors_end"] = figures.end.descriptors;
  if (!result.was_warmed_up) return json;
  json["rss_warmed_up"] = figures.warmed_up.resident_bytes;
  json["rss_growth"] = GrowthOf(figures);
  json["heap_warmed_up"] = figures.warmed_up.heap_bytes;
  json["descriptors_warmed_up"] = figures.warmed_up.descriptors;
  return json;
}

}  // namespace

std::string Summarize(const SoakOptions& options, const SoakResult& result) {
  std::string text = fmt::format(
      "rounds         {} in {:.1f} s, seed {}, {} ranks ({}, transport {})\n"
      "communicators  {} made and destroyed; {} compressors\n",
      result.rounds, result.seconds, options.seed, result.ranks,
      options.ranks.is_one_rank() ? "processes" : "threads", options.transport,
      result.communicators, result.compressors);
  text += "actions       ";
  for (size_t kind = 0; kind < kActionKinds; ++kind) {
    text += fmt::format(" {} {}", result.actions[kind], NameOf(static_cast<ActionKind>(kind)));
  }
  text += fmt::format("\nbytes          {} logical, {} on the wire, all ranks together\n",
                      Total(result, &RankFigures::logical_bytes),
                      Total(result, &RankFigures::wire_bytes));
  for (size_t rank = 0; rank < result.by_rank.size(); ++rank) {
    const RankFigures& figures = result.by_rank[rank];
    if (!HasUsage(figures)) continue;
    text += fmt::format(
        "rank {:<9} {:.1f} MiB resident at the start, {}{:.1f} in the end, of malloc {:.1f}; {} "
        "descriptors at the start, {}{} in the end\n",
        rank, InMiB(figures.start.resident_bytes),
        result.was_warmed_up ? fmt::format("{:.1f} warmed up (of malloc {:.1f}), ",
                                           InMiB(figures.warmed_up.resident_bytes),
                                           InMiB(figures.warmed_up.heap_bytes))
                             : "",
        InMiB(figures.end.resident_bytes), InMiB(figures.end.heap_bytes), figures.start.descriptors,
        result.was_warmed_up ? fmt::format("{} warmed up, ", figures.warmed_up.descriptors) : "",
        figures.end.descriptors);
  }
  if (!result.was_warmed_up) text += "too short to tell whether memory grows\n";
  return text;
}

Json ToJson(const SoakOptions& options, const SoakResult& result, const std::string& error) {
  Json json = {{"seed", options.seed},
               {"first_round", options.first_round},
               {"rounds", result.rounds},
               {"seconds", result.seconds},
               {"nranks", result.ranks},
               {"transport", options.transport},
               {"max_elements", options.max_elements},
               {"communicators", result.communicators},
               {"compressors", result.compressors}};
  for (const bool is_call : {true, false}) {
    Json counts = Json::object();
    for (size_t kind = 0; kind < kActionKinds; ++kind) {
      const auto action = static_cast<ActionKind>(kind);
      if (IsCall(action) == is_call) counts[NameOf(action)] = result.actions[kind];
    }
    json[is_call ? "calls" : "other_actions"] = std::move(counts);
  }
  json["logical_bytes"] = Total(result, &RankFigures::logical_bytes);
  json["wire_bytes"] = Total(result, &RankFigures::wire_bytes);
  json["ranks"] = Json::array();
  for (size_t rank = 0; rank < result.by_rank.size(); ++rank) {
    json["ranks"].push_back(RankJson(result, rank));
  }
  json["error"] = nullptr;
  if (!error.empty()) json["error"] = error;
  return json;
}

}  // namespace onebit::soak
