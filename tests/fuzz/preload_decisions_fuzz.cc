// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The interposer in front of NCCL decides about arbitrary sequences of calls under arbitrary
// rules. Ranks decide alike, and no residual is used for another tensor than its own.
//
// The first line of an input has the rules. After it, a byte chooses the limit of residuals, and
// each call is a byte, its options, and a byte that repeats some of the last calls.
#include <onebit/nccl_ext.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plugins/nccl_preload/call_options.h"
#include "plugins/nccl_preload/call_policy.h"
#include "tests/fuzz/input.h"
#include "tests/preload/initial_config.h"

namespace {

using namespace onebit::preload;
using onebit::testing::Input;

constexpr int kRanks = 3;
constexpr size_t kMostCalls = 1000;

void Require(bool claim) {
  if (!claim) std::abort();
}

std::string NextLine(Input& input) {
  std::string line;
  while (!input.empty()) {
    const char character = static_cast<char>(input.Next());
    if (character == '\n') break;
    line += character;
  }
  return line;
}

// Each rank reads the text itself.
Rules RulesOf(const std::string& text) {
  Rules rules;
  const std::optional<std::string> error = ParseRules(text, &rules);
  if (error) Require(!error->empty() && rules.is_off());
  return rules;
}

struct Call {
  CallFacts facts;
  CallOptions options;
  bool is_in_scope =
      true;  // the result of an exchange about the default rule that is looked at here
};

CallFacts FactsOf(uint8_t byte) {
  constexpr uint64_t kCounts[] = {100, 2000, 300'000, 0};
  constexpr Operation kOperations[] = {Operation::kAllReduce, Operation::kReduceScatter,
                                       Operation::kAllGather, Operation::kAllReduce};
  const int choice = byte >> 2 & 3;
  return {.operation = kOperations[choice],
          .reduction = choice == 3 ? kAvg : kSum,
          .type = (byte & 16) != 0 ? DataType::kBfloat16 : DataType::kFloat32,
          .count = kCounts[byte & 3]};
}

// Reads options as a program would give them. Nothing if they are wrong: the call is not made.
std::optional<CallOptions> NextOptions(Input& input, Operation operation, bool has_tensor,
                                       bool has_codec) {
  std::array<ConfigOption, 2> list{};
  CollConfig config = InitialConfig();
  config.size = kLeastCollConfigBytes;
  if (has_tensor) {
    const uint64_t number = input.Next();
    list[0] = {.next = config.options, .vendor = ONEBIT_NCCL_VENDOR, .id = onebitNcclTensor};
    // Four numbers, which differ in their highest bit and in their lowest one.
    list[0].value.pointer = reinterpret_cast<void*>((number & 1) | (number & 2) << 62);
    config.options = &list[0];
  }
  std::string text;
  if (has_codec) {
    text = NextLine(input);
    list[1] = {.next = config.options, .vendor = ONEBIT_NCCL_VENDOR, .id = onebitNcclCodec};
    list[1].value.text = text.c_str();
    config.options = &list[1];
  }
  CallOptions options;
  const std::optional<std::string> error = ReadCallOptions(config, operation, &options);
  if (error) {
    Require(!error->empty());
    return std::nullopt;
  }
  Require(options.is_plain && options.tensor.has_value() == has_tensor);
  return options;
}

// Bits 0 to 4: facts; 5: a number; 6: a codec; 7: an exchange finds that the default rule does not
// hold.
std::optional<Call> NextCall(Input& input) {
  const uint8_t style = input.Next();
  const CallFacts facts = FactsOf(style);
  const auto options = NextOptions(input, facts.operation, (style & 32) != 0, (style & 64) != 0);
  if (!options) return std::nullopt;
  return Call{.facts = facts, .options = *options, .is_in_scope = (style & 128) == 0};
}

std::vector<Call> CallsOf(Input& input) {
  std::vector<Call> calls;
  while (!input.empty() && calls.size() < kMostCalls) {
    if (const std::optional<Call> call = NextCall(input)) calls.push_back(*call);
    // Repetitions make cycles.
    const uint8_t repeat = input.Next();
    const size_t length = std::min<size_t>(repeat & 15, calls.size());
    for (size_t more = length * (repeat >> 4); more > 0; --more) {
      calls.push_back(calls[calls.size() - length]);
    }
  }
  return calls;
}

// Keeps account of residuals independently of CallPolicy.
class Account {
 public:
  Account(const Rules& rules, const CommFacts& comm) : rules_(rules), comm_(comm) {}

  void Check(const Call& call, const Decision& decision) {
    End(decision.ended);
    if (decision.reason == Reason::kNoRule) return;
    if (decision.reason == Reason::kNoCycle) {
      // The cycle is broken, if there was one, and its tensors with it.
      Require(!call.options.tensor && !HasLive(std::nullopt));
      return;
    }
    Require(!IsKept(call.facts));
    Require(!ended_.contains(decision.tensor));
    const Tensor expected{
        .facts = call.facts,
        .compression = Choose(rules_, comm_, call.facts, call.options.compression),
        .name = call.options.tensor,
        .is_shape = decision.may_repeat};
    Require(!expected.is_shape || (!expected.compression.has_feedback && !expected.name));
    Tensor& tensor = FindOrBegin(decision.tensor, expected);
    Require(tensor.facts == expected.facts && tensor.compression == expected.compression &&
            tensor.name == expected.name && tensor.is_shape == expected.is_shape);
    if (decision.reason == Reason::kStart) ++tensor.exact_calls;
    if (decision.reason == Reason::kCompressed) Compress(call, decision, &tensor);
  }

  // Elements that have residuals, or had them.
  uint64_t elements() const { return elements_; }

 private:
  struct Tensor {
    CallFacts facts;
    Compression compression;
    std::optional<uint64_t> name;
    bool is_shape = false;  // it stands for calls that are alike
    uint32_t exact_calls = 0;
    bool has_residual = false;
  };

  // True if a rule keeps the call exact, whatever its program asks for.
  bool IsKept(const CallFacts& facts) const {
    const auto rule = std::find_if(rules_.rules.begin(), rules_.rules.end(),
                                   [&](const Rule& each) { return each.Matches(comm_, facts); });
    return rules_.is_off() || (rule != rules_.rules.end() && rule->compression.codec == kOff);
  }

  // True if there is a tensor of the name; of none: one of the cycle.
  bool HasLive(std::optional<uint64_t> name) const {
    return std::any_of(tensors_.begin(), tensors_.end(), [&](const auto& each) {
      return each.second.name == name && !each.second.is_shape;
    });
  }

  Tensor& FindOrBegin(uint64_t number, const Tensor& expected) {
    const auto found = tensors_.find(number);
    if (found != tensors_.end()) return found->second;
    // A name's next tensor begins when the one before has ended.
    Require(!expected.name || !HasLive(expected.name));
    return tensors_.emplace(number, expected).first->second;
  }

  void End(const std::vector<uint64_t>& tensors) {
    for (const uint64_t tensor : tensors) {
      Require(tensors_.erase(tensor) == 1);
      ended_.insert(tensor);
    }
  }

  void Compress(const Call& call, const Decision& decision, Tensor* tensor) {
    Require(decision.compression == tensor->compression);
    // The default rule may have to wait for an exchange.
    Require(tensor->exact_calls == tensor->compression.start ||
            (rules_.is_default && tensor->exact_calls > tensor->compression.start));
    if (!tensor->compression.has_feedback || tensor->has_residual) return;
    tensor->has_residual = true;
    elements_ += TensorBytes(comm_, call.facts) / BytesOf(call.facts.type);
  }

  const Rules& rules_;
  const CommFacts comm_;
  std::map<uint64_t, Tensor> tensors_;
  std::set<uint64_t> ended_;
  uint64_t elements_ = 0;
};

bool IsSame(const Decision& a, const Decision& b) {
  return a.reason == b.reason && a.compression == b.compression && a.tensor == b.tensor &&
         a.ended == b.ended && a.asks_scope == b.asks_scope && a.may_repeat == b.may_repeat;
}

struct RankOfJob {
  RankOfJob(const std::string& text, uint64_t most_elements)
      : rules(RulesOf(text)), policy(rules, "world", kRanks, most_elements) {}
  Decision Decide(const Call& call) {
    const auto result = [&] {
      Require(is_asked);
      is_asked = false;
      is_in_scope = call.is_in_scope;
      return is_in_scope;
    };
    const Decision decision =
        policy.Decide(call.facts, call.options.tensor, result, call.options.compression);
    is_asked |= decision.asks_scope;
    const bool is_scoped = rules.is_default && !call.options.compression;
    if (is_scoped && decision.reason == Reason::kCompressed) Require(is_in_scope);
    return decision;
  }

  const Rules rules;
  CallPolicy policy;
  bool is_asked = false;     // an exchange has begun whose result was not looked at
  bool is_in_scope = false;  // the last result
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const std::string text = NextLine(input);
  const uint64_t most_elements = (input.Next() & 1) != 0 ? 5000 : uint64_t{1} << 30;
  RankOfJob first(text, most_elements);
  RankOfJob second(text, most_elements);
  RankOfJob third(text, most_elements);
  Account account(first.rules, first.policy.comm());
  for (const Call& call : CallsOf(input)) {
    if (call.options.is_off) continue;  // not asked about
    const Decision decision = first.Decide(call);
    Require(IsSame(second.Decide(call), decision) && IsSame(third.Decide(call), decision));
    account.Check(call, decision);
    Require(first.policy.elements() == account.elements() && account.elements() <= most_elements);
  }
  return 0;
}
