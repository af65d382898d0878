// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sparse codecs against golden files that make_golden_sparse.py wrote from the text of the format
// alone: packets of all hops from the kernels, headers, and outputs and residuals of whole calls
// from the public API down.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "codec/packet.h"
#include "plan/partition.h"
#include "tests/golden/golden_calls.h"

namespace onebit::testing {
namespace {

using kernels::DataType;
using nlohmann::json;

struct Functions {
  const char* name;
  decltype(&kernels::cpu::SparseCompress) compress;
  decltype(&kernels::cpu::SparseReduce) reduce;
  decltype(&kernels::cpu::SparseAverage) average;
};
constexpr Functions kFunctions[] = {
    {"reference", kernels::reference::SparseCompress, kernels::reference::SparseReduce,
     kernels::reference::SparseAverage},
    {"cpu", kernels::cpu::SparseCompress, kernels::cpu::SparseReduce, kernels::cpu::SparseAverage}};

PacketFormat FormatOf(const json& golden) {
  const bool is_random = golden["codec"] == "randk";
  const bool is_plain = golden["mode"] == "plain";
  return {{.kind = is_plain ? CodecKind::kSparse : CodecKind::kSparseEf,
           .sparse = {.k = golden["k"],
                      .values = golden["values"] == "fp32" ? kernels::SparseValues::kF32
                                                           : kernels::SparseValues::kTwoMagnitudes,
                      .is_random = is_random,
                      .is_unbiased = is_random && is_plain},
           .block = golden["block"]}};
}

// Plays all ranks of one golden case, by kernels alone.
class Player {
 public:
  Player(const json& golden, const Functions& functions)
      : golden_(golden),
        functions_(functions),
        ranks_(golden["n"]),
        has_servers_(golden["hops"] == 2),
        count_(golden["d"]),
        type_(TypeNamed(golden["kind"])),
        residual_type_(TypeNamed(golden["residual"])),
        has_feedback_(golden["mode"] == "ef"),
        format_(FormatOf(golden)),
        chunks_(count_, has_servers_ ? ranks_ : 1, golden["align"], 1, 0),
        worker_(ranks_, std::vector<std::byte>(count_ * kernels::BytesOf(residual_type_))),
        server_(count_ * kernels::BytesOf(residual_type_)),
        mask_(MaskOf(golden)) {}

  void Play(const json& call) {
    std::vector<std::byte> output(count_ * kernels::BytesOf(type_));
    const bool is_sum = golden_["op"] == "sum";
    for (size_t j = 0; j < (has_servers_ ? ranks_ : 1); ++j) {
      const ElementRange range = chunks_.Chunk(j);
      std::vector<std::vector<std::byte>> packets;
      for (size_t r = 0; r < ranks_; ++r) {
        packets.push_back(Compress(r, range, FromHex(call["x"][r])));
        Expect(packets[r], range, call["exchange1"][r][j]);
      }
      if (has_servers_) {
        packets = {Reduce(range, packets, is_sum)};
        Expect(packets[0], range, call["exchange2"][j]);
      }
      const std::vector<const void*> sources = PointersTo(packets);
      functions_.average({.packets = sources.data(),
                          .ranks = packets.size(),
                          .mask = Mask(range.begin),
                          .count = range.count,
                          .output_type = type_,
                          .is_sum = is_sum || has_servers_},
                         format_.codec.sparse_format(), DrawsOf(range),
                         output.data() + range.begin * kernels::BytesOf(type_));
    }
    EXPECT_EQ(HexOf(output.data(), output.size()), call["out"]);
    ++calls_;
  }

  void CheckResiduals() const {
    if (!has_feedback_) return;
    for (size_t r = 0; r < ranks_; ++r) {
      EXPECT_EQ(HexOf(worker_[r].data(), worker_[r].size()), golden_["e"][r]) << "rank " << r;
    }
    EXPECT_EQ(HexOf(server_.data(), server_.size()), golden_["s"]);
  }

 private:
  static std::vector<const void*> PointersTo(const std::vector<std::vector<std::byte>>& packets) {
    std::vector<const void*> pointers;
    for (const auto& packet : packets) pointers.push_back(packet.data());
    return pointers;
  }
  void Expect(const std::vector<std::byte>& packet, ElementRange range,
              const json& expected) const {
    EXPECT_EQ(HexOf(packet.data(), packet.size()), expected) << "from element " << range.begin;
    const Status status = CheckForm(packet, ShapeOf(range.count, format_));
    EXPECT_TRUE(status.ok()) << status.text();
  }
  const uint8_t* Mask(size_t element) const {
    return mask_.empty() ? nullptr : mask_.data() + element / 8;
  }
  kernels::Draws DrawsOf(ElementRange range) const {
    return {.seed = golden_["seed"],
            .first = range.begin,
            .epoch = calls_,
            .tensor = kGoldenTensor,
            .stream = kernels::kSharedStream};
  }
  std::byte* Residual(std::vector<std::byte>& residual, size_t element) const {
    return has_feedback_ ? residual.data() + element * kernels::BytesOf(residual_type_) : nullptr;
  }

  std::vector<std::byte> Compress(size_t r, ElementRange range, const std::vector<std::byte>& x) {
    std::vector<std::byte> packet(ShapeOf(range.count, format_).bytes());
    const kernels::CompressInput in = {
        .input = x.data() + range.begin * kernels::BytesOf(type_),
        .input_type = type_,
        .residual_in = Residual(worker_[r], range.begin),
        .residual_out = Residual(worker_[r], range.begin),
        .residual_type = residual_type_,
        .mask = Mask(range.begin),
        .count = range.count,
    };
    EXPECT_TRUE(functions_
                    .compress(in, golden_["decay"], format_.codec.sparse_format(), DrawsOf(range),
                              packet.data())
                    .is_finite);
    return packet;
  }

  std::vector<std::byte> Reduce(ElementRange range,
                                const std::vector<std::vector<std::byte>>& packets, bool is_sum) {
    std::vector<std::byte> mean(ShapeOf(range.count, format_).bytes());
    const std::vector<const void*> sources = PointersTo(packets);
    const kernels::SparseReduceInput in = {
        .packets = sources.data(),
        .ranks = ranks_,
        .residual_in = Residual(server_, range.begin),
        .residual_out = Residual(server_, range.begin),
        .residual_type = residual_type_,
        .mask = Mask(range.begin),
        .count = range.count,
        .output_type = type_,
        .is_sum = is_sum,
    };
    EXPECT_TRUE(functions_.reduce(in, format_.codec.sparse_format(), DrawsOf(range), mean.data())
                    .is_finite);
    return mean;
  }

  const json& golden_;
  const Functions& functions_;
  const size_t ranks_;
  const bool has_servers_;
  const size_t count_;
  const DataType type_;
  const DataType residual_type_;
  const bool has_feedback_;
  const PacketFormat format_;
  const Partition chunks_;
  std::vector<std::vector<std::byte>> worker_;
  std::vector<std::byte> server_;
  const std::vector<uint8_t> mask_;
  uint32_t calls_ = 0;
};

class GoldenSparseTest : public ::testing::TestWithParam<const char*> {
 protected:
  const json golden_ = LoadGolden(GetParam());
};

TEST_P(GoldenSparseTest, KernelsReproducePacketsAndResiduals) {
  for (const Functions& functions : kFunctions) {
    SCOPED_TRACE(functions.name);
    Player player(golden_, functions);
    for (const json& call : golden_["calls"]) player.Play(call);
    player.CheckResiduals();
  }
}

TEST_P(GoldenSparseTest, HeadersReproduceTheirBytes) {
  const PacketFormat format = FormatOf(golden_);
  const bool has_one_hop = golden_["hops"] == 1;
  CallDescriptor descriptor = GoldenDescriptor(golden_);
  descriptor.codec = format.codec;
  descriptor.has_server_residual = !has_one_hop;
  descriptor.is_one_exchange = has_one_hop;
  for (uint64_t number = 0; number < golden_["calls"].size(); ++number) {
    descriptor.sequence = number;
    descriptor.replica_age = format.codec.sparse.is_random ? static_cast<uint8_t>(number) : 0;
    ExpectHeader(golden_["calls"][number]["header1"], descriptor);
    if (!has_one_hop) ExpectHeader(golden_["calls"][number]["header2"], descriptor);
  }
}

TEST_P(GoldenSparseTest, CallsReproduceOutputsAndResiduals) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.codec = golden_["codec"] == "randk" ? onebitCodecRandk : onebitCodecTopk;
  config.k = golden_["k"];
  config.values = golden_["values"] == "fp32" ? onebitValuesFloat32 : onebitValuesTwoMagnitudes;
  config.hops = golden_["hops"];
  config.efDecay = golden_["decay"];
  ExpectCalls(golden_, config);
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenSparseTest,
                         ::testing::Values("topk_ef_one_hop", "topk_ef_two_hops_fp16_sum_masked",
                                           "topk_ef_decay_values_bf16",
                                           "topk_plain_two_hops_values", "randk_ef_two_hops",
                                           "randk_plain_one_hop_masked", "topk_plain_one_hop_near"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace onebit::testing
