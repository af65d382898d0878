// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/generator/call_models.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/kernels.h"
#include "perf/common/allreduce_model.h"
#include "perf/common/codec_table.h"
#include "perf/common/low_bit_model.h"
#include "perf/common/sparse_model.h"
#include "tests/collectives/chunk_model.h"
#include "tests/generator/levels.h"
#include "tests/support/tensor.h"

namespace onebit::testing::generator {
namespace {

using kernels::DataType;
namespace reference = kernels::reference;

int64_t BlockOf(const TensorCase& t) {
  if (t.codec == onebitCodecFp4) return Or(t.block, 128);
  if (t.codec == onebitCodecSign || t.codec == onebitCodecInt2 || t.is_sparse()) {
    return Or(t.block, 4096);
  }
  return Or(t.block, t.codec == onebitCodecBf16 ? 1 : 256);
}

DataType TypeOf(const TensorCase& t) { return KernelType(static_cast<onebitDataType_t>(t.type)); }
DataType ResidualTypeOf(const TensorCase& t) {
  return KernelType(static_cast<onebitDataType_t>(Or(t.residual, onebitFloat32)));
}
kernels::ScaleRule RuleOf(const TensorCase& t) {
  return t.rule == onebitScaleL1 ? kernels::ScaleRule::kL1 : kernels::ScaleRule::kL2;
}

std::vector<uint8_t> Octets(const Bytes& mask) {
  std::vector<uint8_t> octets(mask.size());
  std::memcpy(octets.data(), mask.data(), mask.size());
  return octets;
}
// One flag for each element; empty without a mask.
std::vector<bool> Flags(const Bytes& mask, size_t elements) {
  std::vector<bool> flags;
  for (size_t i = 0; i < std::min(elements, 8 * mask.size()); ++i) flags.push_back(BitAt(mask, i));
  return flags;
}

class DenseModel : public Model {
 public:
  DenseModel(const Case& c, int tensor)
      : case_(c),
        tensor_(tensor),
        t_(case_.tensors[static_cast<size_t>(tensor)]),
        hosts_(HostsOfReduction(case_, t_)) {}
  std::unique_ptr<Model> Clone() const override {
    return std::make_unique<DenseModel>(case_, tensor_);
  }
  void SetMask(const Bytes&) override {}
  void Reset() override {}
  void LoadGlobalState() override {}

  void Run(int round, const Buffers& b) override {
    const auto n = static_cast<size_t>(case_.ranks);
    const size_t part = static_cast<size_t>(t_.count) * kernels::BytesOf(TypeOf(t_));
    const auto copy = [](void* to, size_t at, const void* from, size_t begin, size_t bytes) {
      if (bytes == 0) return;
      std::memcpy(static_cast<std::byte*>(to) + at, static_cast<const std::byte*>(from) + begin,
                  bytes);
    };
    for (size_t rank = 0; rank < n; ++rank) {
      void* const out = b.outputs[rank];
      const auto me = static_cast<int>(rank);
      switch (t_.collective) {
        case onebitCollectiveAllReduce:
        case onebitCollectiveReduceScatter: {
          const size_t begin = t_.collective == onebitCollectiveAllReduce ? 0 : rank * part;
          std::vector<const void*> inputs;
          for (const void* input : b.inputs) {
            inputs.push_back(static_cast<const std::byte*>(input) + begin);
          }
          const auto count = static_cast<size_t>(t_.count);
          if (hosts_.empty()) {
            model::DenseAllReduce(inputs, count, TypeOf(t_), Op(), out);
          } else {
            model::DenseAllReduceOnHosts(hosts_, inputs, count, TypeOf(t_), Op(), out);
          }
          break;
        }
        case onebitCollectiveAllGather:
          for (size_t from = 0; from < n; ++from) copy(out, from * part, b.inputs[from], 0, part);
          break;
        case onebitCollectiveAllToAll:
          for (size_t from = 0; from < n; ++from) {
            copy(out, from * part, b.inputs[from], rank * part, part);
          }
          break;
        case onebitCollectiveAllToAllv: {
          const size_t size = kernels::BytesOf(TypeOf(t_));
          size_t at = 0;
          for (int from = 0; from < static_cast<int>(n); ++from) {
            size_t begin = 0;
            for (int to = 0; to < me; ++to) begin += Pair(round, from, to);
            copy(out, at * size, b.inputs[static_cast<size_t>(from)], begin * size,
                 Pair(round, from, me) * size);
            at += Pair(round, from, me);
          }
          break;
        }
        case onebitCollectiveSendRecv:
          copy(out, 0, b.inputs[(rank + n - (static_cast<size_t>(t_.root) + 1) % n) % n], 0, part);
          break;
        case kBroadcast:
          copy(out, 0, b.inputs[static_cast<size_t>(t_.root)], 0, part);
          break;
      }
    }
  }

 private:
  size_t Pair(int round, int from, int to) const {
    return PairCount(TensorSeed(case_, tensor_), round, from, to, static_cast<int>(case_.ranks),
                     static_cast<size_t>(t_.count));
  }
  kernels::DenseOp Op() const {
    switch (t_.op) {
      case onebitAvg:
        return kernels::DenseOp::kAverage;
      case onebitMax:
        return kernels::DenseOp::kMax;
      case onebitMin:
        return kernels::DenseOp::kMin;
      default:
        return kernels::DenseOp::kSum;
    }
  }

  const Case case_;
  const int tensor_;
  const TensorCase& t_;
  const model::HostLayout hosts_;
};

// The ranks of a reduction's model, which in two levels are hosts.
size_t ModelRanksOf(const Case& c, const TensorCase& t) {
  const model::HostLayout hosts = HostsOfReduction(c, t);
  return hosts.empty() ? static_cast<size_t>(c.ranks) : hosts.hosts();
}

class SignAllReduce : public Model {
 public:
  SignAllReduce(const Case& c, const TensorCase& t, int tensor, const Bytes& mask)
      : model_({.ranks = ModelRanksOf(c, t),
                .count = static_cast<size_t>(t.count),
                .type = TypeOf(t),
                .is_sum = t.op == onebitSum,
                .has_feedback = t.has_feedback(),
                .rule = RuleOf(t),
                .block = static_cast<size_t>(BlockOf(t)),
                .chunk_alignment = static_cast<size_t>(Or(t.alignment, 64)),
                .has_server_residual = t.server != 0,
                .residual_type = ResidualTypeOf(t),
                .is_transactional = t.is_transactional(),
                .mask = Octets(mask),
                .cuts = CutsOf(c, tensor),
                .hosts = HostsOfReduction(c, t)}) {}
  std::unique_ptr<Model> Clone() const override { return std::make_unique<SignAllReduce>(*this); }
  void Run(int, const Buffers& b) override {
    model_.Run(b.inputs, b.outputs[0]);
    CopyToAll(b);
  }
  void SetMask(const Bytes& mask) override { model_.SetMask(Octets(mask)); }
  void Reset() override { model_.Reset(); }
  void LoadGlobalState() override { model_.LoadGlobalState(); }
  std::vector<float> Worker(size_t rank) const override { return model_.worker_residual(rank); }
  std::vector<float> Server() const override { return model_.server_residual(); }

  size_t bytes = 0;  // of an output

 private:
  void CopyToAll(const Buffers& b) const {
    for (size_t rank = 1; rank < b.outputs.size() && bytes != 0; ++rank) {
      std::memcpy(b.outputs[rank], b.outputs[0], bytes);
    }
  }
  model::AllReduceModel model_;
};

// Signs in the other collectives whose tensors have a part for every rank.
class SignParts : public Model {
 public:
  SignParts(const Case& c, const TensorCase& t, const Bytes& mask)
      : case_{.collective = static_cast<onebitCollective_t>(t.collective),
              .ranks = static_cast<size_t>(c.ranks),
              .count = static_cast<size_t>(t.count),
              .type = TypeOf(t),
              .is_sum = t.op == onebitSum,
              .has_feedback = t.has_feedback(),
              .rule = RuleOf(t),
              .block = static_cast<uint32_t>(BlockOf(t)),
              .residual_type = ResidualTypeOf(t),
              .is_transactional = t.is_transactional(),
              .mask = Octets(mask),
              .hosts = HostsOfReduction(c, t)},
        model_(case_) {}
  std::unique_ptr<Model> Clone() const override { return std::make_unique<SignParts>(*this); }
  void Run(int, const Buffers& b) override {
    std::vector<Tensor> inputs;
    for (const void* const input : b.inputs) {
      inputs.emplace_back(case_.send_count(), model::InputTypeOf(case_));
      std::memcpy(inputs.back().data(), input, inputs.back().bytes());
    }
    const std::vector<Tensor> outputs = model_.Run(inputs);
    for (size_t rank = 0; rank < outputs.size(); ++rank) {
      std::memcpy(b.outputs[rank], outputs[rank].data(), outputs[rank].bytes());
    }
  }
  void SetMask(const Bytes& mask) override { model_.SetMask(Octets(mask)); }
  void Reset() override { model_.Reset(); }
  void LoadGlobalState() override { model_.LoadGlobalState(); }
  std::vector<float> Worker(size_t rank) const override { return model_.residual(rank); }
  void Hold(std::span<const float> values) override { model_.Hold(values); }

 private:
  const ChunkCase case_;
  ChunkModel model_;
};

// LowBitModel and SparseModel have the same calls.
template <typename Codec>
class Collectives : public Model {
 public:
  template <typename Config>
  Collectives(const Config& config, int64_t collective) : model_(config), collective_(collective) {}
  std::unique_ptr<Model> Clone() const override { return std::make_unique<Collectives>(*this); }
  void Run(int, const Buffers& b) override {
    if (collective_ == onebitCollectiveAllReduce) return model_.AllReduce(b.inputs, b.outputs);
    if (collective_ == onebitCollectiveReduceScatter) {
      return model_.ReduceScatter(b.inputs, b.outputs);
    }
    if (collective_ == onebitCollectiveAllGather) return model_.AllGather(b.inputs, b.outputs);
    if constexpr (requires { model_.AllToAll(b.inputs, b.outputs); }) {
      model_.AllToAll(b.inputs, b.outputs);
    }
  }
  void SetMask(const Bytes& mask) override { model_.SetMask(Flags(mask, model_.elements())); }
  void Reset() override { model_.Reset(); }
  void LoadGlobalState() override {
    // What all ranks hold of an all-gather stays as it is.
    if (collective_ == onebitCollectiveAllGather) return;
    if constexpr (requires { model_.LoadGlobalState(true); }) {
      model_.LoadGlobalState(collective_ != onebitCollectiveAllReduce);
    } else {
      model_.LoadGlobalState();
    }
  }
  std::vector<float> Worker(size_t rank) const override { return model_.worker_residual(rank); }
  std::vector<float> Server() const override { return model_.server_residual(); }
  void Settle() override {
    if constexpr (requires { model_.Prime(); }) {
      model_.Prime();
    } else {
      model_.Reset();
    }
  }
  void Hold(std::span<const float> values) override {
    if constexpr (requires { model_.Hold(values); }) model_.Hold(values);
  }

 private:
  Codec model_;
  int64_t collective_;
};

model::LowBitConfig LowBitConfigOf(const Case& c, const TensorCase& t, int tensor) {
  model::LowBitConfig config = {.ranks = ModelRanksOf(c, t),
                                .count = static_cast<size_t>(t.count),
                                .type = TypeOf(t),
                                .is_sum = t.op == onebitSum,
                                .has_feedback = t.has_feedback(),
                                .chunk_alignment = static_cast<size_t>(Or(t.alignment, 64)),
                                .has_server_residual = t.server != 0,
                                .residual_type = ResidualTypeOf(t),
                                .mask = {},
                                .seed = TensorSeed(c, tensor),
                                .tensor_id = static_cast<uint32_t>(100 * tensor),
                                .hosts = HostsOfReduction(c, t)};
  perf::SetCodec(static_cast<onebitCodec_t>(t.codec), static_cast<int32_t>(BlockOf(t)), &config);
  return config;
}

model::SparseConfig SparseConfigOf(const Case& c, const TensorCase& t, int tensor) {
  const auto block = static_cast<size_t>(BlockOf(t));
  const bool is_random = t.codec == onebitCodecRandk;
  return {
      .ranks = ModelRanksOf(c, t),
      .count = static_cast<size_t>(t.count),
      .type = TypeOf(t),
      .format = {{.k = static_cast<uint16_t>(Or(t.k, static_cast<int64_t>(block / 64))),
                  .values = t.values == onebitValuesFloat32 ? kernels::SparseValues::kF32
                                                            : kernels::SparseValues::kTwoMagnitudes,
                  .is_random = is_random,
                  .is_unbiased = is_random && !t.has_feedback()},
                 block},
      .hops = static_cast<int>(Or(t.hops, 1)),
      .is_sum = t.op == onebitSum,
      .has_feedback = t.has_feedback(),
      .ef_decay = static_cast<float>(Or(t.decay, 100)) / 100,
      .chunk_alignment = static_cast<size_t>(Or(t.alignment, 64)),
      .residual_type = ResidualTypeOf(t),
      .mask = {},
      .seed = TensorSeed(c, tensor),
      .tensor_id = static_cast<uint32_t>(100 * tensor),
      .hosts = HostsOfReduction(c, t)};
}

// A reduction in two levels: the model of one whose ranks are hosts, and which gets their means.
class OnHosts : public Model {
 public:
  OnHosts(std::unique_ptr<Model> between, const model::HostLayout& hosts, const TensorCase& t)
      : between_(std::move(between)), hosts_(hosts), t_(t) {}
  std::unique_ptr<Model> Clone() const override {
    return std::make_unique<OnHosts>(between_->Clone(), hosts_, t_);
  }
  void Run(int round, const Buffers& b) override {
    const size_t elements = static_cast<size_t>(t_.count) * t_.SendParts(hosts_.ranks());
    const auto means = model::MeansOfHosts(hosts_, b.inputs, elements, TypeOf(t_));
    between_->Run(round, {.inputs = model::PointersTo(means), .outputs = b.outputs});
  }
  void SetMask(const Bytes& mask) override { between_->SetMask(mask); }
  void Reset() override { between_->Reset(); }
  void LoadGlobalState() override { between_->LoadGlobalState(); }
  // The residual of a host counts for each of its ranks.
  std::vector<float> Worker(size_t rank) const override {
    const size_t host = HostOf(rank);
    const std::vector<size_t> workers = WorkersOf(t_, hosts_, host);
    std::vector<float> values = between_->Worker(host);
    for (size_t i = 0; i < workers.size(); ++i) {
      const auto ranks = static_cast<float>(hosts_.RanksOfWorker(host));
      values[i] = workers[i] == rank ? ranks * values[i] : 0;
    }
    return values;
  }
  std::vector<float> Server() const override { return between_->Server(); }
  void Settle() override { between_->Settle(); }

 private:
  size_t HostOf(size_t rank) const {
    const auto has_rank = [&](const auto& ranks) { return std::ranges::count(ranks, rank) != 0; };
    return static_cast<size_t>(std::ranges::find_if(hosts_.ranks_on, has_rank) -
                               hosts_.ranks_on.begin());
  }

  std::unique_ptr<Model> between_;
  const model::HostLayout hosts_;
  const TensorCase t_;
};

// Messages between two ranks that keep nothing: all-to-all-v, and rings of sends.
class Messages : public Model {
 public:
  Messages(const Case& c, int tensor, const Bytes& mask)
      : case_(c), tensor_(tensor), mask_(Octets(mask)) {}
  std::unique_ptr<Model> Clone() const override { return std::make_unique<Messages>(*this); }
  void SetMask(const Bytes& mask) override { mask_ = Octets(mask); }
  void Reset() override {}
  void LoadGlobalState() override {}

  void Run(int round, const Buffers& b) override {
    const int n = static_cast<int>(case_.ranks);
    for (int from = 0; from < n; ++from) {
      size_t begin = 0;
      for (int to = 0; to < n; ++to) {
        if (t().is_ring() && (from + 1 + static_cast<int>(t().root)) % n != to) continue;
        const size_t count = t().is_ring() ? static_cast<size_t>(t().count) : Pair(round, from, to);
        size_t at = 0;  // where the receiver has it
        for (int before = 0; before < from && !t().is_ring(); ++before)
          at += Pair(round, before, to);
        Send(from, to, std::exchange(begin, begin + count), count,
             static_cast<const std::byte*>(b.inputs[static_cast<size_t>(from)]),
             static_cast<std::byte*>(b.outputs[static_cast<size_t>(to)]) + at * size());
      }
    }
    ++calls_;
  }

 private:
  const TensorCase& t() const { return case_.tensors[static_cast<size_t>(tensor_)]; }
  size_t size() const { return kernels::BytesOf(TypeOf(t())); }
  size_t Pair(int round, int from, int to) const {
    return PairCount(TensorSeed(case_, tensor_), round, from, to, static_cast<int>(case_.ranks),
                     static_cast<size_t>(t().count));
  }
  void Send(int from, int to, size_t begin, size_t count, const std::byte* input,
            std::byte* output) const {
    input += begin * size();
    if (count == 0) return;
    if (from == to) {
      std::memcpy(output, input, count * size());
      return;
    }
    const uint8_t* const mask = mask_.empty() ? nullptr : mask_.data();
    const auto block = static_cast<size_t>(BlockOf(t()));
    const kernels::CompressInput in = {.input = input,
                                       .input_type = TypeOf(t()),
                                       .mask = mask,
                                       .count = count,
                                       .rule = RuleOf(t()),
                                       .scale_type = TypeOf(t())};
    if (t().codec == onebitCodecSign) {
      std::vector<uint8_t> bits(kernels::BitBytes(count));
      std::vector<float> scales(block == 0 ? 1 : kernels::BlockCount(count, block));
      if (block == 0) {
        kernels::TensorSum sum;
        reference::CompressSigns(in, bits.data(), &sum);
        scales[0] =
            reference::OutputScale(reference::ScaleOf(sum, in.rule), 1, false, in.scale_type);
      } else {
        reference::CompressBlocks(in, block, scales.data(), bits.data());
      }
      reference::Decode(bits.data(), scales.data(), count, block, mask, TypeOf(t()), output);
      return;
    }
    const model::LowBitConfig config = LowBitConfigOf(case_, t(), tensor_);
    std::vector<uint16_t> scales(kernels::BlockCount(count, block)), minimums(scales.size());
    std::vector<uint8_t> codes((count * config.code_bits + 7) / 8);
    const kernels::Draws draws = {
        .seed = TensorSeed(case_, tensor_),
        .first = begin,
        .epoch = calls_,
        .tensor = static_cast<uint32_t>(100 * tensor_ + (t().is_ring() ? from : 0)),
        .stream = static_cast<uint32_t>(from)};
    config.functions->compress(in, config.format, draws,
                               {scales.data(), minimums.data(), codes.data()});
    config.functions->Decode({scales.data(), minimums.data(), codes.data()}, config.format, count,
                             mask, TypeOf(t()), output);
  }

  const Case case_;
  const int tensor_;
  std::vector<uint8_t> mask_;
  uint32_t calls_ = 0;
};

// With error feedback two ranks hold what all ranks hold in an all-gather. A rank's mask is that of
// every part.
class HeldRing : public Model {
 public:
  HeldRing(std::unique_ptr<Model> gather, const Case& c, const TensorCase& t)
      : gather_(std::move(gather)),
        ranks_(static_cast<size_t>(c.ranks)),
        shift_(static_cast<size_t>(t.root) + 1),
        count_(static_cast<size_t>(t.count)),
        bytes_(count_ * kernels::BytesOf(TypeOf(t))) {}
  std::unique_ptr<Model> Clone() const override {
    auto copy = std::make_unique<HeldRing>(*this, gather_->Clone());
    return copy;
  }
  HeldRing(const HeldRing& other, std::unique_ptr<Model> gather)
      : gather_(std::move(gather)),
        ranks_(other.ranks_),
        shift_(other.shift_),
        count_(other.count_),
        bytes_(other.bytes_) {}
  static Bytes MaskOfAll(const Bytes& mask, size_t count, size_t ranks) {
    if (mask.empty()) return {};
    Bytes all((count * ranks + 7) / 8 + 1);
    for (size_t i = 0; i < count * ranks; ++i) {
      if (BitAt(mask, i % count)) all[i / 8] |= static_cast<std::byte>(1u << (i % 8));
    }
    return all;
  }
  void Run(int round, const Buffers& b) override {
    std::vector<Bytes> gathered(ranks_, Bytes(ranks_ * bytes_ + 1));
    Buffers all = {.inputs = b.inputs, .outputs = {}};
    for (Bytes& output : gathered) all.outputs.push_back(output.data());
    gather_->Run(round, all);
    for (size_t rank = 0; rank < ranks_; ++rank) {
      const size_t from = (rank + ranks_ - shift_ % ranks_) % ranks_;
      std::memcpy(b.outputs[rank], gathered[rank].data() + from * bytes_, bytes_);
    }
  }
  void SetMask(const Bytes& mask) override { gather_->SetMask(MaskOfAll(mask, count_, ranks_)); }
  void Reset() override { gather_->Reset(); }
  void LoadGlobalState() override {}

 private:
  std::unique_ptr<Model> gather_;
  const size_t ranks_;
  const size_t shift_;
  const size_t count_;
  const size_t bytes_;
};

// The tensor has a compressor, which in two levels works between hosts.
std::unique_ptr<Model> MakeCompressedModel(const Case& c, int tensor) {
  const TensorCase& t = c.tensors[static_cast<size_t>(tensor)];
  const Bytes mask = MaskOf(c, tensor, 0);
  if (t.is_ragged() || (t.is_ring() && !t.has_feedback())) {
    return std::make_unique<Messages>(c, tensor, mask);
  }
  if (t.is_ring()) {
    Case gathering = c;
    TensorCase& gather = gathering.tensors[static_cast<size_t>(tensor)];
    gather.collective = onebitCollectiveAllGather;
    gather.mask = 0;
    auto ring = std::make_unique<HeldRing>(MakeCompressedModel(gathering, tensor), c, t);
    ring->SetMask(mask);
    return ring;
  }
  if (t.is_sparse()) {
    auto model = std::make_unique<Collectives<model::SparseModel>>(SparseConfigOf(c, t, tensor),
                                                                   t.collective);
    model->SetMask(mask);
    return model;
  }
  if (t.codec != onebitCodecSign) {
    auto model = std::make_unique<Collectives<model::LowBitModel>>(LowBitConfigOf(c, t, tensor),
                                                                   t.collective);
    model->SetMask(mask);
    return model;
  }
  if (t.collective != onebitCollectiveAllReduce) return std::make_unique<SignParts>(c, t, mask);
  auto model = std::make_unique<SignAllReduce>(c, t, tensor, mask);
  model->bytes = ReceiveBytes(c, t, tensor, 0, 0);
  return model;
}

}  // namespace

std::unique_ptr<Model> MakeModel(const Case& c, int tensor) {
  const TensorCase& t = c.tensors[static_cast<size_t>(tensor)];
  if (!t.is_compressed()) return std::make_unique<DenseModel>(c, tensor);
  std::unique_ptr<Model> model = MakeCompressedModel(c, tensor);
  const model::HostLayout hosts = HostsOfReduction(c, t);
  if (hosts.empty()) return model;
  return std::make_unique<OnHosts>(std::move(model), hosts, t);
}

}  // namespace onebit::testing::generator
