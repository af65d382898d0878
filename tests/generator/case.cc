// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/generator/case.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <stdexcept>
#include <utility>

#include "tests/generator/levels.h"

namespace onebit::testing::generator {
namespace {

using Names = std::span<const std::pair<int64_t, const char*>>;

constexpr std::pair<int64_t, const char*> kCollectiveNames[] = {
    {onebitCollectiveAllReduce, "allreduce"},
    {onebitCollectiveReduceScatter, "reduce_scatter"},
    {onebitCollectiveAllGather, "all_gather"},
    {onebitCollectiveAllToAll, "all_to_all"},
    {onebitCollectiveAllToAllv, "all_to_all_v"},
    {onebitCollectiveSendRecv, "send_recv"},
    {kBroadcast, "broadcast"}};
constexpr std::pair<int64_t, const char*> kCodecNames[] = {
    {kDense, "dense"},
    {onebitCodecSign, "sign"},
    {onebitCodecFp4, "fp4"},
    {onebitCodecInt8, "int8"},
    {onebitCodecUint8mm, "uint8mm"},
    {onebitCodecInt2, "int2"},
    {onebitCodecInt8Stochastic, "int8_stochastic"},
    {onebitCodecTopk, "topk"},
    {onebitCodecRandk, "randk"},
    {onebitCodecBf16, "bf16"}};
constexpr std::pair<int64_t, const char*> kModeNames[] = {{onebitModePlain, "plain"},
                                                          {onebitModeEf, "ef"}};
constexpr std::pair<int64_t, const char*> kTypeNames[] = {
    {onebitUint8, "u8"},    {onebitInt32, "i32"},   {onebitInt64, "i64"},    {onebitFloat16, "f16"},
    {onebitFloat32, "f32"}, {onebitFloat64, "f64"}, {onebitBfloat16, "bf16"}};
constexpr std::pair<int64_t, const char*> kOpNames[] = {
    {onebitSum, "sum"}, {onebitMax, "max"}, {onebitMin, "min"}, {onebitAvg, "avg"}};
constexpr std::pair<int64_t, const char*> kRuleNames[] = {{onebitScaleL2, "l2"},
                                                          {onebitScaleL1, "l1"}};
constexpr std::pair<int64_t, const char*> kEventNames[] = {
    {0, "none"},         {1, "reset"},  {2, "mask"}, {3, "rank_state"},
    {4, "global_state"}, {5, "revert"}, {6, "nan"},  {7, "prime"}};
constexpr std::pair<int64_t, const char*> kHostsNames[] = {{kOneHost, "one"},
                                                           {kPairs, "pairs"},
                                                           {kTakeTurns, "take_turns"},
                                                           {kHalves, "halves"},
                                                           {kFirstAlone, "first_alone"},
                                                           {kMirrored, "mirrored"},
                                                           {kApart, "apart"}};
constexpr const char* kCountClassNames[kCountClasses] = {"0", "1", "odd", "even", "large"};
constexpr int64_t kLarge = 20'000;  // elements
constexpr uint64_t kCellsOfCase = 3;

// Members of a tensor or a case, by the words of a line.
template <typename T>
struct Field {
  const char* word;
  int64_t T::*member;
  Names names = {};
};
constexpr Field<TensorCase> kTensorFields[] = {
    {"collective", &TensorCase::collective, kCollectiveNames},
    {"codec", &TensorCase::codec, kCodecNames},
    {"mode", &TensorCase::mode, kModeNames},
    {"type", &TensorCase::type, kTypeNames},
    {"op", &TensorCase::op, kOpNames},
    {"count", &TensorCase::count},
    {"block", &TensorCase::block},
    {"rule", &TensorCase::rule, kRuleNames},
    {"k", &TensorCase::k},
    {"values", &TensorCase::values},
    {"hops", &TensorCase::hops},
    {"decay", &TensorCase::decay},
    {"residual", &TensorCase::residual, kTypeNames},
    {"transactional", &TensorCase::transactional},
    {"alignment", &TensorCase::alignment},
    {"server", &TensorCase::server},
    {"levels", &TensorCase::levels},
    {"cuts", &TensorCase::cuts},
    {"mask", &TensorCase::mask},
    {"weights", &TensorCase::weights},
    {"in_place", &TensorCase::in_place},
    {"offset", &TensorCase::offset},
    {"root", &TensorCase::root},
};
constexpr Field<Case> kCaseFields[] = {
    {"seed", &Case::seed},
    {"ranks", &Case::ranks},
    {"grouped", &Case::grouped},
    {"streamed", &Case::streamed},
    {"one_thread", &Case::one_thread},
    {"hosts", &Case::hosts, kHostsNames},
    {"two_level_bytes", &Case::two_level_bytes},
    {"segment", &Case::segment},
    {"one_exchange", &Case::one_exchange},
    {"group_elements", &Case::group_elements},
    {"threads", &Case::threads},
};

std::string TextOf(Names names, int64_t value) {
  for (const auto& [number, name] : names) {
    if (number == value) return name;
  }
  return std::to_string(value);
}

int64_t ValueOf(Names names, std::string_view text) {
  for (const auto& [number, name] : names) {
    if (name == text) return number;
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw std::invalid_argument("no such value: " + std::string(text));
  }
  return value;
}

template <typename T, size_t N>
std::string WordsOf(const Field<T> (&fields)[N], const T& object) {
  std::string line;
  for (const Field<T>& field : fields) {
    const int64_t value = object.*field.member;
    if (value == T{}.*field.member) continue;
    line += std::string(field.word) + "=" + TextOf(field.names, value) + " ";
  }
  return line;
}

template <typename T, size_t N>
bool ReadWord(const Field<T> (&fields)[N], std::string_view word, std::string_view text,
              T& object) {
  for (const Field<T>& field : fields) {
    if (word != field.word) continue;
    object.*field.member = ValueOf(field.names, text);
    return true;
  }
  return false;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end != 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

class Drawer {
 public:
  Drawer(uint64_t seed, uint64_t number) : state_(Mixed(seed, number)) {}
  uint64_t Next() { return state_ = Mixed(state_, 1); }
  template <typename... Choices>
  int64_t OneOf(Choices... choices) {
    const std::array<int64_t, sizeof...(choices)> values{choices...};
    return values[Next() % values.size()];
  }
  bool OneIn(uint64_t n) { return Next() % n == 0; }

 private:
  uint64_t state_;
};

int64_t DrawCount(Drawer& draw, int64_t count_class) {
  switch (count_class) {
    case 0:
      return 0;
    case 1:
      return 1;
    case 2:
      return draw.OneOf(3, 7, 33, 63, 65, 127, 777, 1003, 5001, 4097) +
             2 * (draw.OneIn(2) ? static_cast<int64_t>(draw.Next() % 200) : 0);
    case 3:
      return draw.OneOf(2, 8, 64, 128, 320, 1024, 4096, 8192) *
             (draw.OneIn(2) ? 1 : 1 + static_cast<int64_t>(draw.Next() % 2));
    default:
      return kLarge + static_cast<int64_t>(draw.Next() % 40'000);
  }
}

TensorCase DrawTensor(Drawer& draw, const Cell& cell) {
  TensorCase t;
  t.collective = cell.collective;
  t.codec = cell.codec;
  t.mode = cell.mode;
  t.count = DrawCount(draw, cell.count_class);
  t.type = draw.OneOf(onebitFloat32, onebitFloat32, onebitFloat16, onebitBfloat16);
  if (!t.is_compressed() && draw.OneIn(2)) {
    t.type = draw.OneOf(onebitUint8, onebitInt32, onebitInt64, onebitFloat64);
  }
  t.op = t.is_compressed() ? draw.OneOf(onebitSum, onebitAvg, onebitAvg)
                           : draw.OneOf(onebitSum, onebitAvg, onebitMax, onebitMin);
  if (t.is_sparse()) {
    t.block = draw.OneOf(kDefault, 320, 1024, 4096);
    const int64_t block = t.block == kDefault ? 4096 : t.block;
    t.k = draw.OneOf(kDefault, 1, 5, block / 16, block / 2);
    t.values = draw.OneOf(kDefault, onebitValuesFloat32);
    t.hops = draw.OneOf(kDefault, 1, 2);
    t.decay = draw.OneOf(kDefault, 100, 50);
  } else if (t.codec == onebitCodecSign) {
    t.block = draw.OneOf(kDefault, 0, 64, 128, 4096, 192);
    t.rule = draw.OneOf(kDefault, onebitScaleL1);
  } else if (t.is_ragged()) {
    t.block = draw.OneOf(kDefault, 4, 12, 100, 1004);
  } else {
    t.block = draw.OneOf(kDefault, 32, 96, 128, 4096);
  }
  t.residual = draw.OneOf(kDefault, kDefault, onebitBfloat16);
  t.transactional = draw.OneOf(kDefault, kDefault, 0);
  t.alignment = draw.OneOf(kDefault, kDefault, 8, 72);
  t.server = draw.OneOf(kDefault, kDefault, 0);
  t.levels = draw.OneOf(0, 0, 1, 2);
  t.cuts = draw.OneOf(0, 1, 3, 20);
  t.mask = draw.OneOf(0, 0, 0, 1, 1, 2, 3, 4);
  t.weights = draw.OneIn(6);
  t.in_place = draw.OneOf(0, 1);
  t.offset = draw.OneOf(0, 0, 1, 3);
  t.root = draw.OneOf(0, 1, 2, 3);
  return t;
}

void MakeLegal(TensorCase& t, int64_t ranks) {
  const TensorCase defaults;
  const auto drop = [&](int64_t TensorCase::*member) { t.*member = defaults.*member; };
  const bool is_all_reduce = t.collective == onebitCollectiveAllReduce;
  if (t.collective == kBroadcast || (t.is_ring() && ranks == 1)) t.codec = kDense;
  if (t.is_sparse() && (!t.reduces() && t.collective != onebitCollectiveAllGather))
    t.codec = kDense;
  if (!t.is_compressed()) {
    for (const auto member :
         {&TensorCase::mode, &TensorCase::block, &TensorCase::rule, &TensorCase::residual,
          &TensorCase::transactional, &TensorCase::mask, &TensorCase::weights}) {
      drop(member);
    }
  } else if (t.op != onebitAvg) {
    t.op = onebitSum;
  }
  if (!t.reduces()) drop(&TensorCase::op);
  const bool can_feed_back =
      t.codec != onebitCodecInt8Stochastic && !t.is_ragged() && !(t.is_sparse() && !is_all_reduce);
  if (!can_feed_back) t.mode = onebitModePlain;
  if (t.codec != onebitCodecSign) drop(&TensorCase::rule);
  if (t.codec == onebitCodecBf16) drop(&TensorCase::block);
  if (!t.is_sparse()) {
    for (const auto member : {&TensorCase::k, &TensorCase::values, &TensorCase::decay})
      drop(member);
  }
  if (!t.is_sparse() || !is_all_reduce) drop(&TensorCase::hops);
  if (!t.has_feedback()) drop(&TensorCase::decay);
  if (!is_all_reduce || !t.is_compressed()) {
    drop(&TensorCase::alignment);
    drop(&TensorCase::server);
  }
  // The scalar model of sparse codecs always has a server residual.
  if (t.is_sparse()) drop(&TensorCase::server);
  if (!t.has_feedback() || (!t.reduces() && t.collective != onebitCollectiveAllToAll)) {
    drop(&TensorCase::residual);
  }
  if (t.codec != onebitCodecSign || !is_all_reduce || t.block == ONEBIT_BLOCK_TENSOR ||
      t.count < 2) {
    drop(&TensorCase::cuts);
  }
  if (t.is_ragged()) drop(&TensorCase::mask);
  if (!t.reduces() || t.op != onebitAvg || t.cuts != 0) drop(&TensorCase::weights);
  if (!CanHaveLevels(t) || !t.is_compressed()) drop(&TensorCase::levels);
  if (!t.reduces() && t.collective != onebitCollectiveAllGather && t.collective != kBroadcast) {
    drop(&TensorCase::in_place);
  }
  if (t.collective == kBroadcast) {
    t.root %= ranks;
  } else if (t.is_ring()) {
    t.root = ranks == 1 ? 0 : t.root % (ranks - 1);
  } else {
    drop(&TensorCase::root);
  }
}

// The library refuses these, although their collective can have levels.
void DropLevels(TensorCase& t, const Case& c) {
  if (t.levels != 2) return;
  const bool has_one_hop =
      t.is_sparse() && t.collective == onebitCollectiveAllReduce && t.hops != 2;
  const bool is_refused_on_hosts = t.count != 0 && HasLevels(c) && TakesOneExchange(c, t);
  if (has_one_hop || is_refused_on_hosts || t.block == ONEBIT_BLOCK_TENSOR) t.levels = 0;
}

// Lets calls with a tensor have these levels, in a case that has hosts if there are two.
void SetLevels(Case& c, size_t tensor, int64_t levels) {
  TensorCase& t = c.tensors[tensor];
  MakeLegal(c);
  if (LevelsOf(c, t) == levels) return;
  if (!t.is_compressed()) {
    c.two_level_bytes = levels == 1 ? kNoTwoLevels : 0;
    return;
  }
  t.levels = levels;
  if (levels == 1) return;
  if (t.block == ONEBIT_BLOCK_TENSOR) t.block = kDefault;
  if (t.is_sparse() && t.collective == onebitCollectiveAllReduce) t.hops = 2;
  if (TakesOneExchange(c, t)) c.one_exchange = 0;
}

// The cells with two levels follow those with one.
size_t CellsOfOneLevel() {
  return static_cast<size_t>(
      std::ranges::count_if(Cells(), [](const Cell& cell) { return cell.levels == 1; }));
}
Cell CellAt(const Case& c, const TensorCase& t) {
  return {t.collective, t.codec, t.mode, LevelsOf(c, t), CountClassOf(t.count)};
}
uint64_t CasesFor(size_t cells) { return (cells + kCellsOfCase - 1) / kCellsOfCase; }

}  // namespace

size_t TensorCase::SendParts(size_t ranks) const {
  const bool has_parts = collective == onebitCollectiveReduceScatter ||
                         collective == onebitCollectiveAllToAll || is_ragged();
  return has_parts ? ranks : 1;
}
size_t TensorCase::ReceiveParts(size_t ranks) const {
  const bool has_parts = collective == onebitCollectiveAllGather ||
                         collective == onebitCollectiveAllToAll || is_ragged();
  return has_parts ? ranks : 1;
}
size_t TensorCase::MaskParts(size_t ranks) const {
  return std::max(SendParts(ranks), ReceiveParts(ranks));
}

int64_t CountClassOf(int64_t count) {
  if (count < 2) return count;
  return count >= kLarge ? 4 : count % 2 == 0 ? 3 : 2;
}

const std::vector<Cell>& Cells() {
  static const std::vector<Cell> cells = [] {
    std::vector<Cell> all;
    for (const int64_t levels : {1, 2}) {
      for (int64_t collective = 0; collective < kCollectives; ++collective) {
        for (int64_t codec = kDense; codec < kCodecs - 1; ++codec) {
          for (const int64_t mode : {onebitModePlain, onebitModeEf}) {
            for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{2}, kLarge}) {
              TensorCase t;
              t.collective = collective;
              t.codec = codec;
              t.mode = mode;
              t.count = count;
              Case c = {.ranks = 3, .hosts = kPairs, .tensors = {t}};
              SetLevels(c, 0, levels);
              MakeLegal(c);
              const Cell cell = {collective, codec, mode, levels, CountClassOf(count)};
              if (CellAt(c, c.tensors[0]) == cell) all.push_back(cell);
            }
          }
        }
      }
    }
    return all;
  }();
  return cells;
}

size_t CellOf(const Case& c, const TensorCase& t) {
  return static_cast<size_t>(std::ranges::find(Cells(), CellAt(c, t)) - Cells().begin());
}

uint64_t CasesForAllCells() {
  return CasesFor(CellsOfOneLevel()) + CasesFor(Cells().size() - CellsOfOneLevel());
}

Case DrawCase(uint64_t seed, uint64_t number) {
  Drawer draw(seed, number);
  Case c;
  c.seed = static_cast<int64_t>(draw.Next() % 1'000'000);
  const std::span<const Cell> of_one_level = std::span(Cells()).first(CellsOfOneLevel());
  const uint64_t sweep = number / CasesForAllCells();
  const uint64_t number_in_sweep = number % CasesForAllCells();
  const bool has_one_level = number_in_sweep < CasesFor(of_one_level.size());
  if (has_one_level) {
    c.ranks = draw.OneOf(1, 2, 2, 3, 3, 4);
    c.hosts = draw.OneOf(kOneHost, kOneHost, kPairs, kTakeTurns, kHalves, kApart);
  } else {
    c.ranks = draw.OneOf(3, 4, 4, 5, 6, 7);
    c.hosts = draw.OneOf(kPairs, kTakeTurns, kHalves, kFirstAlone, kMirrored);
  }
  c.two_level_bytes = draw.OneOf(kDefault, kDefault, 0, kNoTwoLevels);
  c.grouped = draw.OneOf(0, 0, 1);
  c.streamed = draw.OneIn(4);
  c.one_thread = draw.OneIn(8);
  c.segment = draw.OneOf(kDefault, kDefault, 100, 1000, 8192);
  c.one_exchange = draw.OneOf(kDefault, 0, 100'000);
  c.group_elements = draw.OneOf(kDefault, kDefault, 1000, 0);
  c.threads = draw.OneOf(0, 0, 2);
  c.events.assign(static_cast<size_t>(draw.OneOf(1, 3, 4, 6)), Event::kNone);
  for (size_t round = 1; round < c.events.size(); ++round) {
    if (!draw.OneIn(2)) c.events[round] = static_cast<Event>(draw.Next() % kEvents);
  }
  const std::span<const Cell> cells =
      has_one_level ? of_one_level : std::span(Cells()).subspan(of_one_level.size());
  const uint64_t first =
      (number_in_sweep - (has_one_level ? 0 : CasesFor(of_one_level.size()))) * kCellsOfCase;
  for (uint64_t i = 0; i < kCellsOfCase; ++i) {
    // Another sweep makes other cells neighbours.
    const Cell& cell = cells[(first + i + sweep) % cells.size()];
    c.tensors.push_back(DrawTensor(draw, cell));
    if (c.tensors.back().is_ring() && c.ranks == 1) c.ranks = 2;
    SetLevels(c, i, cell.levels);
  }
  if (draw.OneIn(2)) {
    Cell cell = Cells()[draw.Next() % Cells().size()];
    if (cell.count_class == kCountClasses - 1) cell.count_class = 2;  // long tensors take long
    c.tensors.push_back(DrawTensor(draw, cell));
  }
  MakeLegal(c);
  return c;
}

void MakeLegal(Case& c) {
  if (c.one_thread != 0) {
    c.grouped = 1;
    c.streamed = 0;
    for (Event& event : c.events) {  // other threads would have to take part
      if (event == Event::kGlobalState) event = Event::kRankState;
      if (event == Event::kPrime) event = Event::kNone;
    }
  }
  for (TensorCase& t : c.tensors) {
    MakeLegal(t, c.ranks);
    DropLevels(t, c);
  }
}

std::string LineOf(const Case& c) {
  std::string line = WordsOf(kCaseFields, c) + "events=";
  for (const Event event : c.events) {
    line += TextOf(kEventNames, static_cast<int64_t>(event)) + ",";
  }
  line.pop_back();
  for (const TensorCase& t : c.tensors) {
    line += " | " + WordsOf(kTensorFields, t);
    line.pop_back();
  }
  return line;
}

Case ParseLine(std::string_view line) {
  Case c;
  const std::vector<std::string_view> sections = Split(line, '|');
  for (size_t i = 0; i < sections.size(); ++i) {
    if (i != 0) c.tensors.emplace_back();
    for (const std::string_view word : Split(sections[i], ' ')) {
      const size_t equals = std::min(word.find('='), word.size());
      const std::string_view name = word.substr(0, equals);
      const std::string_view text = word.substr(std::min(equals + 1, word.size()));
      if (i == 0 && name == "events") {
        c.events.clear();
        for (const std::string_view event : Split(text, ',')) {
          c.events.push_back(static_cast<Event>(ValueOf(kEventNames, event)));
        }
      } else if (i == 0 ? !ReadWord(kCaseFields, name, text, c)
                        : !ReadWord(kTensorFields, name, text, c.tensors.back())) {
        throw std::invalid_argument("no such word: " + std::string(word));
      }
    }
  }
  if (c.tensors.empty() || c.events.empty()) throw std::invalid_argument("a case has tensors");
  return c;
}

std::string NameOfCollective(int64_t collective) { return TextOf(kCollectiveNames, collective); }
std::string NameOfCodec(int64_t codec) { return TextOf(kCodecNames, codec); }
std::string NameOfMode(int64_t mode) { return TextOf(kModeNames, mode); }
std::string NameOfCountClass(int64_t count_class) {
  return kCountClassNames[static_cast<size_t>(count_class)];
}

std::vector<Case> Simpler(const Case& c) {
  std::vector<Case> simpler;
  const auto add = [&](Case candidate) {
    MakeLegal(candidate);
    if (LineOf(candidate) != LineOf(c)) simpler.push_back(std::move(candidate));
  };
  for (size_t i = 0; i < c.tensors.size() && c.tensors.size() > 1; ++i) {
    Case fewer = c;
    fewer.tensors.erase(fewer.tensors.begin() + static_cast<std::ptrdiff_t>(i));
    add(fewer);
  }
  for (size_t i = 0; i < c.events.size(); ++i) {
    Case fewer = c;
    if (c.events.size() > 1) {
      fewer.events.erase(fewer.events.begin() + static_cast<std::ptrdiff_t>(i));
      add(fewer);
    }
    fewer = c;
    fewer.events[i] = Event::kNone;
    add(fewer);
  }
  for (const Field<Case>& field : kCaseFields) {
    if (field.member == &Case::seed) continue;
    Case simple = c;
    simple.*field.member = Case{}.*field.member;
    add(simple);
  }
  if (c.hosts != kOneHost) {
    Case simple = c;
    simple.hosts = kPairs;
    if (c.hosts != kPairs) add(simple);
    for (const int64_t ranks : {3, 4}) {
      simple = c;
      simple.ranks = ranks;
      if (ranks < c.ranks) add(simple);
    }
  }
  for (size_t i = 0; i < c.tensors.size(); ++i) {
    for (const Field<TensorCase>& field : kTensorFields) {
      const bool has_a_default = field.member != &TensorCase::collective &&
                                 field.member != &TensorCase::codec &&
                                 field.member != &TensorCase::count;
      if (!has_a_default) continue;
      Case simple = c;
      simple.tensors[i].*field.member = TensorCase{}.*field.member;
      add(simple);
    }
    for (const int64_t count : {int64_t{1}, int64_t{65}, c.tensors[i].count / 2}) {
      if (count >= c.tensors[i].count) continue;
      Case shorter = c;
      shorter.tensors[i].count = count;
      add(shorter);
    }
  }
  return simpler;
}

}  // namespace onebit::testing::generator
