// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/generator/run_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "onebit/onebit.hpp"
#include "tests/generator/calls.h"
#include "tests/generator/levels.h"
#include "tests/support/comm_group.h"
#include "tests/support/residuals.h"
#include "tests/support/tensor.h"

namespace onebit::testing::generator {
namespace {

// All ranks' outputs and what was found, which threads of ranks share.
class Job {
 public:
  explicit Job(const Case& c)
      : c_(c),
        group_(OptionsOf(c)),
        outputs_(c.tensors.size(),
                 Outputs(c.events.size(), std::vector<Bytes>(static_cast<size_t>(c.ranks)))) {}
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const Case& c() const { return c_; }
  onebitComm_t comm(int rank) const { return group_.comm(rank); }
  Bytes& output(int tensor, int round, int rank) {
    return outputs_[static_cast<size_t>(tensor)][static_cast<size_t>(round)]
                   [static_cast<size_t>(rank)];
  }
  std::vector<Outputs>& outputs() { return outputs_; }

  // Keeps the first failure, and wakes the other ranks.
  void Fail(int rank, const std::string& text) {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_.has_value()) failure_ = "rank " + std::to_string(rank) + ": " + text;
    }
    for (int one = 0; one < group_.ranks(); ++one) onebitCommAbort(comm(one));
    throw std::runtime_error(text);
  }
  const std::optional<std::string>& failure() const { return failure_; }

 private:
  static std::vector<CommOptions> OptionsOf(const Case& c) {
    std::vector<CommOptions> by_rank;
    for (const uint32_t host : HostsOf(c)) {
      by_rank.push_back(
          {.timeout_ms = 60'000,
           .one_exchange_elements = Chosen(c.one_exchange),
           .two_level_bytes = Chosen(c.two_level_bytes),
           .segment_elements = Chosen(c.segment).value_or(CommOptions().segment_elements),
           .group_elements = Chosen(c.group_elements),
           .compute_threads = Chosen(c.threads),
           .host = std::to_string(host)});
    }
    return by_rank;
  }

  const Case& c_;
  CommGroup group_;
  std::vector<Outputs> outputs_;  // by tensor
  std::mutex mutex_;
  std::optional<std::string> failure_;  // guarded by mutex_ while threads run
};

class LiveRank : public RankActions {
 public:
  LiveRank(Job& job, int rank) : job_(job), rank_(rank), c_(job.c()), slots_(c_.tensors.size()) {}

  void Begin() override {
    if (c_.streamed != 0) Must(onebitStreamCreate(&stream_), "onebitStreamCreate");
  }
  void Create(int tensor) override {
    const TensorCase& t = TensorOf(tensor);
    if (!t.is_compressed()) return;
    Slot& slot = SlotOf(tensor);
    if (slot.mask.empty()) slot.mask = MaskOf(c_, tensor, 0);
    if (!t.is_ring()) return CreateOne(tensor, 0, slot.compressor);
    CreateOne(tensor, rank_, slot.compressor);
    CreateOne(tensor, Peer(t, -1), slot.receiver);
  }
  void Apply(Event event, int tensor, int /*round*/, int mask_version) override {
    Slot& slot = SlotOf(tensor);
    if (event == Event::kMask) slot.mask = MaskOf(c_, tensor, mask_version);
    for (UniqueCompressor* one : {&slot.compressor, &slot.receiver}) {
      if (*one == nullptr) continue;
      switch (event) {
        case Event::kReset:
          Must(onebitCompressorReset(one->get()), "onebitCompressorReset");
          break;
        case Event::kMask:
          Must(onebitCompressorSetMask(one->get(),
                                       reinterpret_cast<const uint8_t*>(slot.mask.data())),
               "onebitCompressorSetMask");
          break;
        case Event::kRevert:
          Must(onebitCompressorRevert(one->get()), "onebitCompressorRevert");
          break;
        case Event::kRankState:
          Reload(tensor, onebitStateRank, *one, one == &slot.receiver);
          break;
        case Event::kGlobalState:
          Reload(tensor, onebitStateGlobal, *one, one == &slot.receiver);
          break;
        case Event::kNone:
        case Event::kNan:
        case Event::kPrime:
          break;
      }
    }
  }
  void Fill(int tensor, int round) override {
    const TensorCase& t = TensorOf(tensor);
    Slot& slot = SlotOf(tensor);
    slot.input = InputOf(c_, tensor, round, rank_);
    const auto size = BytesOfType(static_cast<int>(t.type));
    const auto type = KernelType(static_cast<onebitDataType_t>(t.type));
    const auto offset = static_cast<size_t>(t.offset);
    const size_t sends = SendBytes(c_, t, tensor, round, rank_) / size;
    const size_t receives = ReceiveBytes(c_, t, tensor, round, rank_) / size;
    // In place, one buffer is a part of the other.
    slot.send.emplace(t.in_place != 0 ? std::max(sends, receives) : sends, type, offset);
    slot.receive.emplace(receives, type, offset);
    slot.from = slot.send->data();
    slot.to = slot.receive->data();
    if (t.in_place != 0) {
      const size_t own = static_cast<size_t>(rank_) * std::min(sends, receives) * size;
      slot.from = slot.send->data() + (receives > sends ? own : 0);
      slot.to = slot.send->data() + (sends > receives ? own : 0);
    }
    std::memcpy(slot.from, slot.input.data(), slot.input.size());
    if (t.weights != 0) {
      const float weight = WeightOf(static_cast<uint64_t>(c_.seed), round, rank_);
      Must(onebitCompressorSetWeight(slot.compressor.get(), weight), "onebitCompressorSetWeight");
      slot.kept.reset();
      if (IsAbsent(t, round)) slot.kept = ResidualsOf(slot.compressor.get()).worker;
    }
  }
  void PutNan(int tensor, int round, int mask_version) override {
    const NanPlace bad = NanPlaceOf(c_, tensor, round, mask_version);
    const TensorCase& t = TensorOf(tensor);
    Slot& slot = SlotOf(tensor);
    if (bad.rank != rank_) return;
    if (bad.element * BytesOfType(static_cast<int>(t.type)) >= slot.input.size()) return;
    generator::PutNan(slot.from, static_cast<int>(t.type), bad.element);
    generator::PutNan(slot.input.data(), static_cast<int>(t.type), bad.element);
  }
  void GroupStart() override { Must(onebitGroupStart(), "onebitGroupStart"); }
  void GroupEnd() override { Must(onebitGroupEnd(), "onebitGroupEnd"); }
  void Call(int tensor, int round) override {
    const TensorCase& t = TensorOf(tensor);
    if (LevelsOf(c_, t) == 2) ++two_level_calls_;
    Slot& slot = SlotOf(tensor);
    const auto count = static_cast<size_t>(t.count);
    const auto type = static_cast<onebitDataType_t>(t.type);
    const auto op = static_cast<onebitRedOp_t>(t.op);
    const onebitComm_t comm = job_.comm(rank_);
    const onebitCompressor_t compressor = slot.compressor.get();
    switch (t.collective) {
      case onebitCollectiveAllReduce:
        return Must(onebitAllReduce(slot.from, slot.to, count, type, op, compressor, comm, stream_),
                    "onebitAllReduce");
      case onebitCollectiveReduceScatter:
        return Must(
            onebitReduceScatter(slot.from, slot.to, count, type, op, compressor, comm, stream_),
            "onebitReduceScatter");
      case onebitCollectiveAllGather:
        return Must(onebitAllGather(slot.from, slot.to, count, type, compressor, comm, stream_),
                    "onebitAllGather");
      case onebitCollectiveAllToAll:
        return Must(onebitAllToAll(slot.from, slot.to, count, type, compressor, comm, stream_),
                    "onebitAllToAll");
      case onebitCollectiveAllToAllv:
        return CallRagged(tensor, round, slot);
      case onebitCollectiveSendRecv:
        if (c_.grouped == 0) GroupStart();
        Must(onebitSend(slot.from, count, type, Peer(t, 1), compressor, comm, stream_),
             "onebitSend");
        Must(onebitRecv(slot.to, count, type, Peer(t, -1), slot.receiver.get(), comm, stream_),
             "onebitRecv");
        if (c_.grouped == 0) GroupEnd();
        return;
      default:
        return Must(onebitBroadcast(slot.from, slot.to, count, type, static_cast<int>(t.root), comm,
                                    stream_),
                    "onebitBroadcast");
    }
  }
  void Prime(int tensor) override {
    if (LevelsOfPriming(c_, TensorOf(tensor)) == 2) ++two_level_calls_;
    Slot& slot = SlotOf(tensor);
    Must(onebitCompressorPrime(slot.compressor.get(), slot.from, slot.to,
                               static_cast<onebitRedOp_t>(TensorOf(tensor).op), stream_),
         "onebitCompressorPrime");
  }
  void Synchronize() override { Must(onebitStreamSynchronize(stream_), "onebitStreamSynchronize"); }
  void Check(int tensor, int round) override {
    const TensorCase& t = TensorOf(tensor);
    Slot& slot = SlotOf(tensor);
    Bytes& output = job_.output(tensor, round, rank_);
    output.resize(ReceiveBytes(c_, t, tensor, round, rank_));
    if (!output.empty()) std::memcpy(output.data(), slot.to, output.size());
    if (!slot.send->HasIntactGuards() || !slot.receive->HasIntactGuards()) {
      job_.Fail(rank_, "round " + std::to_string(round) + ", tensor " + std::to_string(tensor) +
                           ": bytes outside of the buffers were written");
    }
    if (slot.kept.has_value() && ResidualsOf(slot.compressor.get()).worker != *slot.kept) {
      job_.Fail(rank_, "round " + std::to_string(round) + ", tensor " + std::to_string(tensor) +
                           ": the residual has changed, although the rank is absent");
    }
    if (t.in_place == 0 && !slot.input.empty() &&
        std::memcmp(slot.from, slot.input.data(), slot.input.size()) != 0) {
      job_.Fail(rank_, "round " + std::to_string(round) + ", tensor " + std::to_string(tensor) +
                           ": the input was changed");
    }
  }
  void End() override {
    if (stream_ != nullptr) Must(onebitStreamDestroy(stream_), "onebitStreamDestroy");
    stream_ = nullptr;
    onebitCommStats_t stats = {.size = sizeof(stats)};
    Must(onebitCommGetStats(job_.comm(rank_), &stats), "onebitCommGetStats");
    if (stats.two_level_calls == two_level_calls_) return;
    job_.Fail(rank_, std::to_string(stats.two_level_calls) + " calls had two levels instead of " +
                         std::to_string(two_level_calls_));
  }
  ~LiveRank() override {
    if (stream_ != nullptr) onebitStreamDestroy(stream_);
  }
  LiveRank(const LiveRank&) = delete;
  LiveRank& operator=(const LiveRank&) = delete;

 private:
  struct Slot {
    UniqueCompressor compressor;
    UniqueCompressor receiver;  // of a ring
    Bytes mask;
    Bytes input;
    std::optional<Bytes> kept;  // the residual of a rank that is absent
    std::optional<Tensor> send;
    std::optional<Tensor> receive;
    std::byte* from = nullptr;
    std::byte* to = nullptr;
  };

  const TensorCase& TensorOf(int tensor) const { return c_.tensors[static_cast<size_t>(tensor)]; }
  Slot& SlotOf(int tensor) { return slots_[static_cast<size_t>(tensor)]; }
  // True if what this rank compresses is absent: its input, or that of all ranks of its host.
  bool IsAbsent(const TensorCase& t, int round) const {
    const auto rank = static_cast<size_t>(rank_);
    const std::vector<uint32_t> hosts = HostsOf(c_);
    for (size_t other = 0; other < hosts.size(); ++other) {
      const bool shares = LevelsOf(c_, t) == 2 ? hosts[other] == hosts[rank] : other == rank;
      if (shares && WeightOf(static_cast<uint64_t>(c_.seed), round, static_cast<int>(other)) != 0) {
        return false;
      }
    }
    return true;
  }
  // The rank that this one sends to (1) or receives from (-1).
  int Peer(const TensorCase& t, int direction) const {
    const int n = static_cast<int>(c_.ranks);
    const int shift = (static_cast<int>(t.root) + 1) % n;
    return (rank_ + (direction > 0 ? shift : n - shift)) % n;
  }
  void Must(onebitResult_t result, const char* call) {
    if (result == onebitSuccess) return;
    job_.Fail(rank_, std::string(call) + " returned " + onebitGetErrorString(result) + ": " +
                         onebitGetLastError(nullptr));
  }
  void CreateOne(int tensor, int id, UniqueCompressor& compressor) {
    const TensorCase& t = TensorOf(tensor);
    onebitCompressorConfig_t config = ConfigOf(c_, tensor, id);
    const std::vector<size_t> cuts = CutsOf(c_, tensor);
    if (!cuts.empty()) config.cuts = cuts.data();
    config.cutCount = cuts.size();
    const Bytes& mask = SlotOf(tensor).mask;
    if (!mask.empty()) config.mask = reinterpret_cast<const uint8_t*>(mask.data());
    Must(MakeCompressor(compressor, job_.comm(rank_),
                        t.is_ragged() ? 0 : static_cast<size_t>(t.count),
                        static_cast<onebitDataType_t>(t.type), &config),
         "onebitCompressorCreate");
    onebitCompressorStats_t stats = {.size = sizeof(stats)};
    Must(onebitCompressorGetStats(compressor.get(), &stats), "onebitCompressorGetStats");
    CheckLevels("tensor " + std::to_string(tensor) + " has", stats.levels,
                static_cast<uint64_t>(LevelsOf(c_, t)));
  }
  void CheckLevels(const std::string& subject, uint64_t is, uint64_t should) {
    if (is == should) return;
    job_.Fail(rank_,
              subject + " " + std::to_string(is) + " levels instead of " + std::to_string(should));
  }
  // A compressor of the same configuration continues from a state.
  void Reload(int tensor, onebitStateKind_t kind, UniqueCompressor& compressor, bool receives) {
    size_t bytes = 0;
    Must(onebitCompressorExport(compressor.get(), kind, nullptr, &bytes), "onebitCompressorExport");
    Bytes state(bytes);
    Must(onebitCompressorExport(compressor.get(), kind, state.data(), &bytes),
         "onebitCompressorExport");
    compressor.reset();
    const TensorCase& t = TensorOf(tensor);
    CreateOne(tensor, !t.is_ring() ? 0 : receives ? Peer(t, -1) : rank_, compressor);
    Must(onebitCompressorImport(compressor.get(), state.data(), bytes), "onebitCompressorImport");
  }
  void CallRagged(int tensor, int round, Slot& slot) {
    const TensorCase& t = TensorOf(tensor);
    const int n = static_cast<int>(c_.ranks);
    std::vector<size_t> send_counts, send_begins, receive_counts, receive_begins;
    size_t sent = 0, received = 0;
    for (int peer = 0; peer < n; ++peer) {
      const auto pair = [&](int from, int to) {
        return PairCount(TensorSeed(c_, tensor), round, from, to, n, static_cast<size_t>(t.count));
      };
      send_counts.push_back(pair(rank_, peer));
      receive_counts.push_back(pair(peer, rank_));
      send_begins.push_back(sent);
      receive_begins.push_back(received);
      sent += send_counts.back();
      received += receive_counts.back();
    }
    Must(onebitAllToAllv(slot.from, send_counts.data(), send_begins.data(), slot.to,
                         receive_counts.data(), receive_begins.data(),
                         static_cast<onebitDataType_t>(t.type), slot.compressor.get(),
                         job_.comm(rank_), stream_),
         "onebitAllToAllv");
  }

  Job& job_;
  const int rank_;
  const Case& c_;
  onebitStream_t stream_ = nullptr;
  uint64_t two_level_calls_ = 0;  // that should have two levels
  std::vector<Slot> slots_;
};

// Returns the failure of a call, if any, and all outputs by tensor.
std::optional<std::string> MakeAllCalls(const Case& c, std::vector<Outputs>* outputs) {
  Job job(c);
  const auto make = [&](int first, int end) {
    std::vector<std::unique_ptr<RankActions>> ranks;
    for (int rank = first; rank < end; ++rank)
      ranks.push_back(std::make_unique<LiveRank>(job, rank));
    try {
      MakeCalls(c, ranks);
    } catch (const std::runtime_error&) {  // the job has the text
      while (onebitGroupEnd() == onebitSuccess) {
      }
    }
  };
  const int ranks = static_cast<int>(c.ranks);
  if (c.one_thread != 0) {
    make(0, ranks);
  } else {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(make, rank, rank + 1);
  }
  *outputs = std::move(job.outputs());
  return job.failure();
}

std::string Hex(const Bytes& bytes, size_t begin, size_t count) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = begin; i < std::min(begin + count, bytes.size()); ++i) {
    const auto value = std::to_integer<unsigned>(bytes[i]);
    text += {kDigits[value >> 4], kDigits[value & 15]};
  }
  return text;
}

std::optional<Finding> Compare(const Case& c, int tensor, const Outputs& expected,
                               const Outputs& actual) {
  for (int round = 0; round < static_cast<int>(expected.size()); ++round) {
    for (int rank = 0; rank < static_cast<int>(c.ranks); ++rank) {
      const Bytes& should = expected[static_cast<size_t>(round)][static_cast<size_t>(rank)];
      const Bytes& is = actual[static_cast<size_t>(round)][static_cast<size_t>(rank)];
      if (should == is) continue;
      const size_t size =
          BytesOfType(static_cast<int>(c.tensors[static_cast<size_t>(tensor)].type));
      const auto differs = std::ranges::mismatch(should, is).in1 - should.begin();
      const size_t element = static_cast<size_t>(differs) / size;
      Finding finding = {.round = round, .rank = rank, .tensor = tensor, .byte = element * size};
      finding.expected.assign(
          should.begin() + static_cast<std::ptrdiff_t>(finding.byte),
          should.begin() + static_cast<std::ptrdiff_t>(std::min(finding.byte + 16, should.size())));
      finding.text = "round " + std::to_string(round) + ", tensor " + std::to_string(tensor) +
                     ", rank " + std::to_string(rank) + ": element " + std::to_string(element) +
                     " of the output is " + Hex(is, finding.byte, size) + " instead of " +
                     Hex(should, finding.byte, size);
      return finding;
    }
  }
  return std::nullopt;
}

void ReplaceNans(Bytes& elements, int64_t type) {
  const kernels::DataType of = KernelType(static_cast<onebitDataType_t>(type));
  for (size_t i = 0; i < elements.size() / kernels::BytesOf(of); ++i) {
    const float value = kernels::reference::LoadElement(elements.data(), of, i);
    if (!std::isfinite(value)) kernels::reference::StoreElement(0, of, i, elements.data());
  }
}

// The same case in its plainest form, which must give the same results.
Case PlainForm(const Case& c) {
  Case plain = c;
  plain.grouped = plain.streamed = plain.one_thread = plain.threads = 0;
  plain.segment = kDefault;
  for (Event& event : plain.events) {
    if (event == Event::kRankState) event = Event::kNone;
  }
  return plain;
}

}  // namespace

std::optional<Finding> RunCase(const Case& c) {
  std::vector<Outputs> plain, actual;
  const bool has_models = std::ranges::all_of(c.tensors, HasModel);
  if (!has_models) {
    if (const auto failure = MakeAllCalls(PlainForm(c), &plain)) return Finding{.text = *failure};
  }
  if (const auto failure = MakeAllCalls(c, &actual)) return Finding{.text = *failure};
  for (int tensor = 0; tensor < static_cast<int>(c.tensors.size()); ++tensor) {
    const auto at = static_cast<size_t>(tensor);
    const TensorCase& t = c.tensors[at];
    const Outputs& expected = HasModel(t) ? Expected(c, tensor) : plain[at];
    if (auto finding = Compare(c, tensor, expected, actual[at])) return finding;
    if (HasModel(t)) continue;
    Outputs finite = actual[at];  // all inputs of ranks that are present are
    for (auto& round : finite) {
      for (Bytes& output : round) ReplaceNans(output, t.type);
    }
    if (auto finding = Compare(c, tensor, finite, actual[at])) return finding;
    if (t.collective != onebitCollectiveAllReduce) continue;
    Outputs of_rank_0 = actual[at];
    for (auto& round : of_rank_0) std::fill(round.begin(), round.end(), round[0]);
    if (auto finding = Compare(c, tensor, of_rank_0, actual[at])) return finding;
  }
  return std::nullopt;
}

}  // namespace onebit::testing::generator
