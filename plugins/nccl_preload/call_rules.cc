// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Parses rules and applies them.
#include "plugins/nccl_preload/call_rules.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <system_error>
#include <utility>

namespace onebit::preload {
namespace {

constexpr std::string_view kDefaultRules =
    "op=allreduce,type=float32,bytes>=1M:fp4; op=allreduce,type=bfloat16,bytes>=1M:fp4";

using Error = std::optional<std::string>;

struct TypeName {
  std::string_view name;
  DataType type;
};
constexpr TypeName kTypes[] = {{"float32", DataType::kFloat32},
                               {"bfloat16", DataType::kBfloat16},
                               {"float16", DataType::kFloat16}};
struct ReductionName {
  std::string_view name;
  int reduction;
};
constexpr ReductionName kReductions[] = {{"sum", kSum}, {"avg", kAvg}};
struct OperationName {
  std::string_view name;
  Operation operation;
};
constexpr OperationName kCompressible[] = {{"allreduce", Operation::kAllReduce},
                                           {"reducescatter", Operation::kReduceScatter},
                                           {"allgather", Operation::kAllGather},
                                           {"alltoall", Operation::kAllToAll},
                                           {"sendrecv", Operation::kSend}};

// The operation that a rule for this one names.
constexpr Operation Named(Operation operation) {
  return IsPair(operation) ? Operation::kSend : operation;
}

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

// Cuts the text before the next separator off `rest`.
std::string_view CutPart(std::string_view* rest, char separator) {
  const size_t end = rest->find(separator);
  const std::string_view part = rest->substr(0, end);
  *rest = end == std::string_view::npos ? std::string_view() : rest->substr(end + 1);
  return Trimmed(part);
}

std::string Quoted(std::string_view text) {
  std::string quoted(1, '"');
  quoted.append(text).push_back('"');
  return quoted;
}

// True if `text` begins with `key`, which is then cut off.
bool Consume(std::string_view* text, std::string_view key) {
  if (!text->starts_with(key)) return false;
  *text = Trimmed(text->substr(key.size()));
  return true;
}

template <typename Number>
bool ParseNumber(std::string_view text, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

bool ParseSize(std::string_view text, uint64_t* bytes) {
  int shift = 0;
  if (!text.empty()) {
    const std::string_view units = "KMG";
    const size_t unit = units.find(text.back());
    if (unit != std::string_view::npos) {
      shift = 10 * (static_cast<int>(unit) + 1);
      text.remove_suffix(1);
    }
  }
  if (!ParseNumber(text, bytes) || *bytes > UINT64_MAX >> shift) return false;
  *bytes <<= shift;
  return true;
}

Error ParseOperation(std::string_view value, Rule* rule) {
  for (const OperationName& each : kCompressible) {
    if (value == each.name) rule->operation = each.operation;
  }
  if (rule->operation) return std::nullopt;
  return "operation " + Quoted(value) +
         " cannot be compressed, only allreduce, reducescatter, allgather, alltoall, sendrecv";
}

Error ParseReduction(std::string_view value, Rule* rule) {
  for (const ReductionName& each : kReductions) {
    if (value == each.name) rule->reduction = each.reduction;
  }
  if (rule->reduction) return std::nullopt;
  return "reduction " + Quoted(value) + " cannot be compressed, only sum, avg";
}

Error ParseType(std::string_view value, Rule* rule) {
  for (const TypeName& each : kTypes) {
    if (value == each.name) rule->type = each.type;
  }
  if (rule->type) return std::nullopt;
  return "type " + Quoted(value) + " cannot be compressed, only float32, bfloat16, float16";
}

Error ParseCondition(std::string_view text, Rule* rule) {
  std::string_view value = text;
  if (Consume(&value, "comm=")) {
    if (value.empty()) return "comm= needs the name of a communicator";
    rule->comm = std::string(value);
    return std::nullopt;
  }
  if (Consume(&value, "op=")) return ParseOperation(value, rule);
  if (Consume(&value, "reduce=")) return ParseReduction(value, rule);
  if (Consume(&value, "type=")) return ParseType(value, rule);
  if (Consume(&value, "bytes>=") || Consume(&value, "bytes<")) {
    uint64_t* const bound = text.starts_with("bytes<") ? &rule->bytes_below : &rule->least_bytes;
    if (ParseSize(value, bound)) return std::nullopt;
    return Quoted(value) + " is not a size in bytes, such as 65536, 64K or 1M";
  }
  if (Consume(&value, "ranks>=")) {
    if (ParseNumber(value, &rule->least_ranks) && rule->least_ranks > 0) return std::nullopt;
    return Quoted(value) + " is not a number of ranks";
  }
  return "unknown condition " + Quoted(text) +
         "; the conditions are comm=, op=, reduce=, type=, bytes>=, bytes<, ranks>= and *";
}

const CodecChoice* FindCodec(std::string_view name) {
  const auto* const found = std::ranges::find(kCodecs, name, &CodecChoice::name);
  return found == std::end(kCodecs) ? nullptr : found;
}

std::string NoCodec(std::string_view name) {
  std::string text = "unknown codec " + Quoted(name) + "; the codecs are ";
  for (const CodecChoice& each : kCodecs) {
    if (&each != kCodecs) text.append(", ");
    text.append(each.name);
  }
  return text;
}

Error ParseOption(std::string_view text, Compression* compression) {
  std::string_view value = text;
  if (text == "ef" || text == "plain") {
    compression->has_feedback = text == "ef";
    return std::nullopt;
  }
  if (Consume(&value, "block=")) {
    if (ParseNumber(value, &compression->block) && compression->block > 0) return std::nullopt;
    return Quoted(value) + " is not a number of elements";
  }
  if (Consume(&value, "start=")) {
    if (ParseNumber(value, &compression->start)) return std::nullopt;
    return Quoted(value) + " is not a number of calls";
  }
  if (Consume(&value, "levels=")) {
    compression->has_one_level = value == "1";
    if (value == "0" || value == "1") return std::nullopt;
    return Quoted(value) + " is not a number of levels; 0 lets onebit decide, 1 is one level";
  }
  return "unknown option " + Quoted(text) + "; the options are ef, plain, block=, start=, levels=";
}

Error CheckBlock(const CodecChoice& codec, uint32_t block) {
  if (block % codec.multiple == 0 && block <= codec.most) return std::nullopt;
  return "block=" + std::to_string(block) + " " + std::string(codec.problem);
}

// Neither rank of a pair knows how many calls the other one counts.
Error CheckFeedback(const Compression& compression, Operation operation) {
  if (!IsPair(operation) || (!compression.has_feedback && compression.start == 0)) {
    return std::nullopt;
  }
  return "op=sendrecv takes neither ef nor start=: sends and receives are plain from the first "
         "call on";
}

Error ParseRule(std::string_view text, Rule* rule) {
  std::string_view options = text;
  std::string_view conditions = CutPart(&options, ':');
  if (conditions == "default" || conditions == "off")
    return "default and off cannot be combined with codecs or other rules";
  if (conditions.size() == Trimmed(text).size()) return "it has no \":\" followed by a codec";
  if (conditions.empty()) return "it has no conditions; write * for all reductions";
  if (conditions == "*") conditions = {};
  while (!conditions.empty()) {
    if (Error error = ParseCondition(CutPart(&conditions, ','), rule)) return error;
  }
  if (rule->reduction && rule->operation && !IsReduction(*rule->operation)) {
    return "reduce= is for operations that reduce: allreduce, reducescatter";
  }
  return ParseCompression(options, rule->operation.value_or(Operation::kAllReduce),
                          &rule->compression);
}

bool MatchesName(std::string_view pattern, std::string_view name) {
  if (!pattern.ends_with('*')) return pattern == name;
  pattern.remove_suffix(1);
  return name.starts_with(pattern);
}

}  // namespace

bool Rule::IsFor(const CommFacts& comm_facts, Operation called) const {
  return (!comm || MatchesName(*comm, comm_facts.name)) && comm_facts.ranks >= least_ranks &&
         (operation ? *operation == Named(called)
                    : IsReduction(called) || compression.codec == kOff);
}

bool Rule::Matches(const CommFacts& comm_facts, const CallFacts& call) const {
  const uint64_t bytes = TensorBytes(comm_facts, call);
  return IsFor(comm_facts, call.operation) && (!reduction || *reduction == call.reduction) &&
         (!type || *type == call.type) && bytes >= least_bytes && bytes < bytes_below;
}

bool Rules::MaySelect(const CommFacts& comm, Operation operation) const {
  return std::ranges::any_of(rules, [&](const Rule& rule) {
    return rule.IsFor(comm, operation) && rule.compression.codec != kOff;
  });
}

std::optional<std::string> ParseCompression(std::string_view text, Operation operation,
                                            Compression* compression) {
  *compression =
      IsReduction(operation) ? Compression{} : Compression{.has_feedback = false, .start = 0};
  const std::string_view name = CutPart(&text, ',');
  const CodecChoice* const codec = FindCodec(name);
  if (codec == nullptr) return NoCodec(name);
  compression->codec = codec->codec;
  while (!text.empty()) {
    if (Error error = ParseOption(CutPart(&text, ','), compression)) return error;
  }
  if (Error error = CheckFeedback(*compression, operation)) return error;
  return CheckBlock(*codec, compression->block);
}

std::optional<std::string> ParseRules(std::string_view text, Rules* rules) {
  *rules = {};
  text = Trimmed(text);
  if (text.empty() || text == "off") return std::nullopt;
  const bool is_default = text == "default";
  std::string_view rest = is_default ? kDefaultRules : text;
  std::vector<Rule> parsed;
  while (!Trimmed(rest).empty()) {
    const std::string_view part = CutPart(&rest, ';');
    if (part.empty()) continue;
    Rule rule;
    if (Error error = ParseRule(part, &rule)) {
      return "rule " + std::to_string(parsed.size() + 1) + ", " + Quoted(part) + ": " + *error;
    }
    parsed.push_back(std::move(rule));
  }
  *rules = {.rules = std::move(parsed), .is_default = is_default};
  return std::nullopt;
}

Compression Choose(const Rules& rules, const CommFacts& comm, const CallFacts& call,
                   const std::optional<Compression>& asked) {
  bool is_compressible = false;
  for (const OperationName& each : kCompressible) {
    is_compressible |= each.operation == Named(call.operation);
  }
  bool has_type = false;
  for (const TypeName& each : kTypes) has_type |= each.type == call.type;
  bool has_reduction = !IsReduction(call.operation);
  for (const ReductionName& each : kReductions) has_reduction |= each.reduction == call.reduction;
  if (comm.ranks < 2 || call.count == 0 || !is_compressible || !has_type || !has_reduction) {
    return {};
  }
  for (const Rule& rule : rules.rules) {
    if (!rule.Matches(comm, call)) continue;
    return asked && rule.compression.codec != kOff ? *asked : rule.compression;
  }
  return asked && !rules.is_off() ? *asked : Compression{};
}

}  // namespace onebit::preload
