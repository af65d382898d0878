// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/generator/c_program.h"

#include <algorithm>
#include <functional>

#include "c_program_text.h"  // generated: kFillText, kStartText
#include "tests/generator/calls.h"
#include "tests/generator/levels.h"

namespace onebit::testing::generator {
namespace {

std::string Number(uint64_t value) { return std::to_string(value); }
std::string Number(int value) { return std::to_string(value); }

// Writes statements for a variable `rank`.
class WrittenRank : public RankActions {
 public:
  WrittenRank(const Case& c, const Finding& finding, std::string* text)
      : c_(c), finding_(finding), text_(text) {}

  void Begin() override {
    if (c_.streamed != 0) Write("MUST(onebitStreamCreate(&streams[rank]));");
  }
  void Create(int tensor) override {
    const TensorCase& t = TensorOf(tensor);
    if (!t.is_compressed()) return;
    if (t.mask != 0) Write("SetMask(" + Number(tensor) + ", rank, 0);");
    const std::string id = Number(tensor);
    Write("compressors[rank][" + id + "] = New" + id + "(rank, " + (t.is_ring() ? "rank" : "0") +
          ");");
    if (t.is_ring()) {
      Write("receivers[rank][" + id + "] = New" + id + "(rank, Peer(" + id + ", rank, -1));");
    }
  }
  void Apply(Event event, int tensor, int /*round*/, int mask_version) override {
    const std::string id = Number(tensor);
    if (event == Event::kMask) Write("SetMask(" + id + ", rank, " + Number(mask_version) + ");");
    ApplyTo("compressors", event, id, TensorOf(tensor).is_ring() ? "rank" : "0");
    if (TensorOf(tensor).is_ring()) ApplyTo("receivers", event, id, "Peer(" + id + ", rank, -1)");
  }
  void Fill(int tensor, int round) override {
    Write("Fill(" + Number(tensor) + ", " + Number(round) + ", rank);");
    if (TensorOf(tensor).weights == 0) return;
    Write("MUST(onebitCompressorSetWeight(compressors[rank][" + Number(tensor) +
          "], WeightOf(SEED, " + Number(round) + ", rank)));");
  }
  void PutNan(int tensor, int round, int mask_version) override {
    const NanPlace bad = NanPlaceOf(c_, tensor, round, mask_version);
    const TensorCase& t = TensorOf(tensor);
    const size_t elements =
        static_cast<size_t>(t.count) * t.SendParts(static_cast<size_t>(c_.ranks));
    if (bad.element >= elements) return;
    Write("if (rank == " + Number(bad.rank) + ") PutNan(from[rank][" + Number(tensor) + "], " +
          Number(static_cast<int>(t.type)) + ", " + Number(uint64_t{bad.element}) + ");");
  }
  void GroupStart() override { WriteOnce("MUST(onebitGroupStart());"); }
  void GroupEnd() override { WriteOnce("MUST(onebitGroupEnd());"); }
  void Call(int tensor, int round) override {
    const TensorCase& t = TensorOf(tensor);
    const std::string id = Number(tensor);
    const std::string buffers = "from[rank][" + id + "], to[rank][" + id + "], ";
    const std::string shape = Number(static_cast<uint64_t>(t.count)) + ", (onebitDataType_t)" +
                              Number(static_cast<int>(t.type)) + ", ";
    const std::string op = "(onebitRedOp_t)" + Number(static_cast<int>(t.op)) + ", ";
    const std::string rest = "compressors[rank][" + id + "], comms[rank], streams[rank]));";
    switch (t.collective) {
      case onebitCollectiveAllReduce:
        return Write("MUST(onebitAllReduce(" + buffers + shape + op + rest);
      case onebitCollectiveReduceScatter:
        return Write("MUST(onebitReduceScatter(" + buffers + shape + op + rest);
      case onebitCollectiveAllGather:
        return Write("MUST(onebitAllGather(" + buffers + shape + rest);
      case onebitCollectiveAllToAll:
        return Write("MUST(onebitAllToAll(" + buffers + shape + rest);
      case onebitCollectiveAllToAllv:
        return Write("AllToAllv(" + id + ", " + Number(round) + ", rank);");
      case onebitCollectiveSendRecv:
        if (c_.grouped == 0) GroupStart();
        Write("MUST(onebitSend(from[rank][" + id + "], " + shape + "Peer(" + id + ", rank, 1), " +
              rest);
        Write("MUST(onebitRecv(to[rank][" + id + "], " + shape + "Peer(" + id +
              ", rank, -1), receivers[rank][" + id + "], comms[rank], streams[rank]));");
        if (c_.grouped == 0) GroupEnd();
        return;
      default:
        return Write("MUST(onebitBroadcast(" + buffers + shape + Number(static_cast<int>(t.root)) +
                     ", comms[rank], streams[rank]));");
    }
  }
  void Prime(int tensor) override {
    const std::string id = Number(tensor);
    Write("MUST(onebitCompressorPrime(compressors[rank][" + id + "], from[rank][" + id +
          "], to[rank][" + id + "], (onebitRedOp_t)" +
          Number(static_cast<int>(TensorOf(tensor).op)) + ", streams[rank]));");
  }
  void Synchronize() override { Write("MUST(onebitStreamSynchronize(streams[rank]));"); }
  void Check(int tensor, int round) override {
    if (round != finding_.round || tensor != finding_.tensor) return;
    std::string hex;
    for (const std::byte byte : finding_.expected) {
      constexpr char kDigits[] = "0123456789abcdef";
      hex += {kDigits[std::to_integer<unsigned>(byte) >> 4],
              kDigits[std::to_integer<unsigned>(byte) & 15]};
    }
    Write("if (rank == " + Number(finding_.rank) + ") Expect(" + Number(tensor) + ", " +
          Number(uint64_t{finding_.byte}) + ", \"" + hex + "\", rank);");
  }
  void End() override {
    if (c_.streamed != 0) Write("MUST(onebitStreamDestroy(streams[rank]));");
  }

 private:
  const TensorCase& TensorOf(int tensor) const { return c_.tensors[static_cast<size_t>(tensor)]; }
  void WriteOnce(const std::string& statement) { *text_ += "  " + statement + "\n"; }
  void Write(const std::string& statement) {
    WriteOnce(c_.one_thread == 0 ? statement
                                 : "for (rank = 0; rank < RANKS; ++rank) { " + statement + " }");
  }
  void ApplyTo(const std::string& which, Event event, const std::string& id,
               const std::string& number) {
    const std::string compressor = which + "[rank][" + id + "]";
    switch (event) {
      case Event::kReset:
        return Write("MUST(onebitCompressorReset(" + compressor + "));");
      case Event::kMask:
        return Write("MUST(onebitCompressorSetMask(" + compressor + ", masks[rank][" + id + "]));");
      case Event::kRevert:
        return Write("MUST(onebitCompressorRevert(" + compressor + "));");
      case Event::kRankState:
      case Event::kGlobalState:
        return Write(compressor + " = Reloaded" + id + "(rank, " + number + ", " + compressor +
                     ", " + (event == Event::kRankState ? "onebitStateRank" : "onebitStateGlobal") +
                     ");");
      case Event::kNone:
      case Event::kNan:
      case Event::kPrime:
        return;
    }
  }

  const Case& c_;
  const Finding& finding_;
  std::string* const text_;
};

std::string ListOf(const Case& c, const std::function<int64_t(const TensorCase&)>& member) {
  std::string list;
  for (const TensorCase& t : c.tensors) list += std::to_string(member(t)) + ", ";
  list.resize(list.size() - 2);
  return list;
}

void Replace(std::string* text, const std::string& word, const std::string& value) {
  text->replace(text->find(word), word.size(), value);
}

std::string StartOf(const Case& c) {
  std::string start = kStartText;
  const auto ranks = static_cast<size_t>(c.ranks);
  const auto number = [](size_t parts) { return static_cast<int64_t>(parts); };
  Replace(&start, "{COUNTS}", "{" + ListOf(c, [](const auto& t) { return t.count; }) + "}");
  Replace(&start, "{TYPES}", "{" + ListOf(c, [](const auto& t) { return t.type; }) + "}");
  Replace(&start, "{SEND_PARTS}",
          "{" + ListOf(c, [&](const auto& t) { return number(t.SendParts(ranks)); }) + "}");
  Replace(&start, "{RECEIVE_PARTS}",
          "{" + ListOf(c, [&](const auto& t) { return number(t.ReceiveParts(ranks)); }) + "}");
  Replace(&start, "{MASK_PARTS}",
          "{" + ListOf(c, [&](const auto& t) { return number(t.MaskParts(ranks)); }) + "}");
  Replace(&start, "{MASK_KINDS}", "{" + ListOf(c, [](const auto& t) { return t.mask; }) + "}");
  Replace(&start, "{IN_PLACE}", "{" + ListOf(c, [](const auto& t) { return t.in_place; }) + "}");
  Replace(&start, "{OFFSETS}", "{" + ListOf(c, [](const auto& t) { return t.offset; }) + "}");
  Replace(&start, "{RAGGED}",
          "{" + ListOf(c, [](const auto& t) { return int64_t{t.is_ragged()}; }) + "}");
  Replace(&start, "{WEIGHTED}", "{" + ListOf(c, [](const auto& t) { return t.weights; }) + "}");
  Replace(&start, "{ROOTS}", "{" + ListOf(c, [](const auto& t) { return t.root; }) + "}");
  return start;
}

// Functions that make the compressor of a tensor, and one that continues from its state.
std::string CompressorFunctions(const Case& c, int tensor) {
  const TensorCase& t = c.tensors[static_cast<size_t>(tensor)];
  const onebitCompressorConfig_t config = ConfigOf(c, tensor, 0);
  std::string text = "static onebitCompressor_t New" + Number(tensor) +
                     "(int rank, int id) {\n  onebitCompressorConfig_t config = "
                     "ONEBIT_COMPRESSOR_CONFIG_INIT;\n  onebitCompressor_t compressor = NULL;\n";
  const auto set = [&](const char* member, int64_t value) {
    if (value != kDefault)
      text += "  config." + std::string(member) + " = " + std::to_string(value) + ";\n";
  };
  set("mode", config.mode);
  set("collective", config.collective);
  set("codec", config.codec);
  set("scaleRule", config.scaleRule);
  set("block", config.block);
  set("residualType", config.residualType);
  set("transactional", config.transactional);
  set("chunkAlignment", config.chunkAlignment);
  set("serverResidual", config.serverResidual);
  if (config.levels != 0) set("levels", config.levels);
  set("k", config.k);
  set("values", config.values);
  set("hops", config.hops);
  if (t.decay != kDefault) text += "  config.efDecay = " + std::to_string(t.decay) + " / 100.0f;\n";
  if (t.cuts != 0) {
    const std::vector<size_t> cuts = CutsOf(c, tensor);
    std::string list;
    for (const size_t cut : cuts) list += (list.empty() ? "" : ", ") + std::to_string(cut);
    text += "  static const size_t cuts[] = {" + list + "};\n  config.cuts = cuts;\n" +
            "  config.cutCount = " + std::to_string(cuts.size()) + ";\n";
  }
  const std::string count = t.is_ragged() ? "0" : std::to_string(t.count);
  text +=
      "  config.seed = TensorSeed(" + Number(tensor) +
      ");\n  config.tensorId = " + Number(100 * tensor) + " + id;\n  config.mask = masks[rank][" +
      Number(tensor) + "];\n  MUST(onebitCompressorCreate(&compressor, comms[rank], " + count +
      ", (onebitDataType_t)" + std::to_string(t.type) + ", &config));\n  return compressor;\n}\n\n";
  bool is_reloaded = false;
  for (const Event event : c.events) {
    is_reloaded |= event == Event::kRankState || event == Event::kGlobalState;
  }
  if (!is_reloaded) return text;
  return text + "static onebitCompressor_t Reloaded" + Number(tensor) +
         "(int rank, int id, onebitCompressor_t old, onebitStateKind_t kind) {\n"
         "  size_t bytes = 0;\n  void* state;\n  onebitCompressor_t compressor;\n"
         "  MUST(onebitCompressorExport(old, kind, NULL, &bytes));\n  state = malloc(bytes);\n"
         "  MUST(onebitCompressorExport(old, kind, state, &bytes));\n"
         "  MUST(onebitCompressorDestroy(old));\n  compressor = New" +
         Number(tensor) +
         "(rank, id);\n  MUST(onebitCompressorImport(compressor, state, bytes));\n  free(state);\n"
         "  return compressor;\n}\n\n";
}

// Returns how many successive ranks are on each host, the last one perhaps with fewer; 0 if ranks
// do not follow one another.
int64_t SuccessiveRanks(const Case& c) {
  const std::vector<uint32_t> hosts = HostsOf(c);
  const int64_t ranks = std::ranges::count(hosts, hosts[0]);
  for (int64_t rank = 0; rank < c.ranks; ++rank) {
    if (hosts[static_cast<size_t>(rank)] != static_cast<uint32_t>(rank / ranks)) return 0;
  }
  return ranks;
}

// Threads of one process cannot say that they are on such hosts.
std::string NoteOnHosts(const Case& c) {
  std::string letters;
  for (const uint32_t host : HostsOf(c)) letters += static_cast<char>('a' + host);
  return "  // Here all ranks share a host. The finding needs a process for each rank, and "
         "ONEBIT_HOST to\n"
         "  // be the letter of the rank among " +
         letters + ".\n";
}

}  // namespace

std::string ProgramOf(const Case& c, const Finding& finding) {
  std::string text = "// " + LineOf(c) + "\n// " + finding.text +
                     "\n// cc -std=gnu11 finding.c -lonebit -lpthread\n#include <onebit/onebit.h>\n"
                     "#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>\n"
                     "#include <string.h>\n\n#define RANKS " +
                     std::to_string(c.ranks) + "\n#define TENSORS " +
                     std::to_string(c.tensors.size()) + "\n#define SEED " + std::to_string(c.seed) +
                     "u\n\n" + kFillText + "\n" + StartOf(c);
  for (int tensor = 0; tensor < static_cast<int>(c.tensors.size()); ++tensor) {
    if (c.tensors[static_cast<size_t>(tensor)].is_compressed()) {
      text += CompressorFunctions(c, tensor);
    }
  }
  text += "static void* MakeCalls(void* argument) {\n  int rank = (int)(intptr_t)argument;\n";
  std::unique_ptr<RankActions> rank = std::make_unique<WrittenRank>(c, finding, &text);
  MakeCalls(c, {&rank, 1});
  text += "  return NULL;\n}\n\nint main(void) {\n  int rank = 0;\n";
  const auto set = [&](const char* name, int64_t value) {
    if (value == kDefault) return;
    text += "  setenv(\"" + std::string(name) + "\", \"" + std::to_string(value) + "\", 1);\n";
  };
  if (c.hosts != kOneHost) {
    if (const int64_t ranks = SuccessiveRanks(c); ranks != 0) {
      set("ONEBIT_HOST_RANKS", ranks);
    } else {
      text += NoteOnHosts(c);
    }
  }
  set("ONEBIT_TWO_LEVEL_BYTES", c.two_level_bytes);
  set("ONEBIT_SEGMENT_ELEMENTS", c.segment);
  set("ONEBIT_ONE_EXCHANGE_ELEMENTS", c.one_exchange);
  set("ONEBIT_GROUP_ELEMENTS", c.group_elements);
  set("ONEBIT_COMPUTE_THREADS", c.threads);
  text += "  MUST(onebitCommInitAll(comms, RANKS, NULL));\n";
  if (c.one_thread != 0) return text + "  MakeCalls(NULL);\n  return failures;\n}\n";
  return text +
         "  pthread_t threads[RANKS];\n"
         "  for (rank = 0; rank < RANKS; ++rank) {\n"
         "    pthread_create(&threads[rank], NULL, MakeCalls, (void*)(intptr_t)rank);\n  }\n"
         "  for (rank = 0; rank < RANKS; ++rank) pthread_join(threads[rank], NULL);\n"
         "  return failures;\n}\n";
}

}  // namespace onebit::testing::generator
