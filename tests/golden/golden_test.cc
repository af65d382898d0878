// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The bytes of FORMAT.md: packets, residuals, headers and outputs against the golden files, which
// make_golden.py wrote from the text of the format alone.
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "codec/message_header.h"
#include "codec/packet.h"
#include "kernels/kernels.h"
#include "plan/partition.h"
#include "plan/runs.h"
#include "tests/golden/golden_file.h"

namespace onebit {
namespace {

using kernels::DataType;
using kernels::ScaleRule;
using nlohmann::json;
using testing::FromHex;
using testing::HexOf;
using testing::LoadGolden;
using testing::TypeNamed;

// The two implementations under one roof.
struct Kernels {
  const char* name;
  decltype(&kernels::cpu::CompressBlocks) compress_blocks;
  decltype(&kernels::cpu::CompressSigns) compress_signs;
  decltype(&kernels::cpu::CompressResidual) compress_residual;
  decltype(&kernels::cpu::ReduceBlocks) reduce_blocks;
  decltype(&kernels::cpu::ReduceSigns) reduce_signs;
  decltype(&kernels::cpu::ReduceResidual) reduce_residual;
  decltype(&kernels::cpu::Decode) decode;
};

constexpr Kernels kReference = {"reference",
                                kernels::reference::CompressBlocks,
                                kernels::reference::CompressSigns,
                                kernels::reference::CompressResidual,
                                kernels::reference::ReduceBlocks,
                                kernels::reference::ReduceSigns,
                                kernels::reference::ReduceResidual,
                                kernels::reference::Decode};
constexpr Kernels kCpu = {"cpu",
                          kernels::cpu::CompressBlocks,
                          kernels::cpu::CompressSigns,
                          kernels::cpu::CompressResidual,
                          kernels::cpu::ReduceBlocks,
                          kernels::cpu::ReduceSigns,
                          kernels::cpu::ReduceResidual,
                          kernels::cpu::Decode};

// Plays all ranks of one golden case.
class Player {
 public:
  Player(const json& golden, const Kernels& kernels)
      : golden_(golden),
        kernels_(kernels),
        ranks_(golden["n"]),
        count_(golden["d"]),
        block_(golden["block"]),
        type_(TypeNamed(golden["kind"])),
        residual_type_(TypeNamed(golden["residual"])),
        has_feedback_(golden["mode"] == "ef"),
        is_sum_(golden["op"] == "sum"),
        chunks_(count_, ranks_, golden["align"], block_, 0),
        worker_(ranks_, std::vector<std::byte>(count_ * kernels::BytesOf(residual_type_))),
        server_(count_ * kernels::BytesOf(residual_type_)) {
    if (golden.contains("mask")) mask_ = FromHex(golden["mask"]);
    if (golden.contains("cuts")) {
      cuts_ = Cuts::Create(golden["cuts"].get<std::vector<size_t>>(), count_).value();
    }
  }

  void Play(const json& call) {
    std::vector<std::vector<std::vector<std::byte>>> packets(ranks_);
    for (size_t r = 0; r < ranks_; ++r) packets[r] = Compress(r, FromHex(call["x"][r]));
    for (size_t r = 0; r < ranks_; ++r) {
      for (size_t j = 0; j < ranks_; ++j) {
        EXPECT_EQ(HexOf(packets[r][j].data(), packets[r][j].size()), call["exchange1"][r][j])
            << "rank " << r << " chunk " << j;
      }
    }
    std::vector<std::byte> output(count_ * kernels::BytesOf(type_));
    for (size_t j = 0; j < ranks_; ++j) {
      std::vector<std::byte> mean = Reduce(j, packets);
      EXPECT_EQ(HexOf(mean.data(), mean.size()), call["exchange2"][j]) << "chunk " << j;
      const PacketView view = ViewOf(mean.data(), ShapeOfChunk(j));
      ForEachRunOf(j, [&](const PacketRun& run) {
        kernels_.decode(view.bits + run.byte, view.scales + run.scale, run.elements.count, block_,
                        Mask(run.elements.begin), type_,
                        output.data() + run.elements.begin * kernels::BytesOf(type_));
      });
    }
    EXPECT_EQ(HexOf(output.data(), output.size()), call["out"]);
  }

  void CheckResiduals() const {
    if (!has_feedback_) return;
    for (size_t r = 0; r < ranks_; ++r) {
      EXPECT_EQ(HexOf(worker_[r].data(), worker_[r].size()), golden_["e"][r]) << "rank " << r;
    }
    EXPECT_EQ(HexOf(server_.data(), server_.size()), golden_["s"]);
  }

 private:
  const uint8_t* Mask(size_t element) const {
    return mask_.empty() ? nullptr : reinterpret_cast<const uint8_t*>(mask_.data()) + element / 8;
  }
  template <typename Take>
  PacketShape ForEachRunOf(size_t j, const Take& take) const {
    RunWalk walk(cuts_.get(), block_);
    walk.Over(chunks_.Chunk(j), take);
    return walk.Shape({{.kind = CodecKind::kSign, .block = static_cast<uint32_t>(block_)}});
  }
  PacketShape ShapeOfChunk(size_t j) const {
    return ForEachRunOf(j, [](const PacketRun&) {});
  }
  ScaleRule Rule() const { return golden_["rule"] == "l1" ? ScaleRule::kL1 : ScaleRule::kL2; }

  std::vector<std::vector<std::byte>> Compress(size_t r, const std::vector<std::byte>& x) {
    std::vector<std::vector<std::byte>> packets;
    kernels::TensorSum sum;
    const auto input_of = [&](ElementRange range) {
      std::byte* residual = worker_[r].data() + range.begin * kernels::BytesOf(residual_type_);
      return kernels::CompressInput{
          .input = x.data() + range.begin * kernels::BytesOf(type_),
          .input_type = type_,
          .residual_in = has_feedback_ ? residual : nullptr,
          .residual_out = has_feedback_ ? residual : nullptr,
          .residual_type = residual_type_,
          .mask = Mask(range.begin),
          .count = range.count,
          .rule = Rule(),
      };
    };
    for (size_t j = 0; j < ranks_; ++j) {
      const PacketShape shape = ShapeOfChunk(j);
      packets.emplace_back(shape.bytes());
      const PacketView view = ViewOf(packets.back().data(), shape);
      ForEachRunOf(j, [&](const PacketRun& run) {
        if (block_ != 0) {
          EXPECT_TRUE(kernels_.compress_blocks(input_of(run.elements), block_,
                                               view.scales + run.scale, view.bits + run.byte));
        } else {
          kernels_.compress_signs(input_of(run.elements), view.bits, &sum);
        }
      });
    }
    if (block_ != 0) return packets;
    const float scale = kernels::reference::ScaleOf(sum, Rule());
    for (size_t j = 0; j < ranks_; ++j) {
      const ElementRange range = chunks_.Chunk(j);
      if (range.count == 0) continue;
      std::memcpy(packets[j].data(), &scale, sizeof(scale));
      if (has_feedback_) kernels_.compress_residual(input_of(range), scale);
    }
    return packets;
  }

  std::vector<std::byte> Reduce(size_t j,
                                const std::vector<std::vector<std::vector<std::byte>>>& packets) {
    std::vector<std::byte> mean(ShapeOfChunk(j).bytes());
    ForEachRunOf(j, [&](const PacketRun& run) { ReduceRun(j, run, packets, mean.data()); });
    return mean;
  }

  void ReduceRun(size_t j, const PacketRun& run,
                 const std::vector<std::vector<std::vector<std::byte>>>& packets, std::byte* mean) {
    const PacketShape shape = ShapeOfChunk(j);
    const auto view_of = [&](std::byte* packet) {
      const PacketView whole = ViewOf(packet, shape);
      return PacketView{whole.scales + run.scale, whole.bits + run.byte};
    };
    const PacketView view = view_of(mean);
    std::vector<const uint8_t*> bits;
    std::vector<const float*> scales;
    for (const auto& of_rank : packets) {
      const PacketView source = view_of(const_cast<std::byte*>(of_rank[j].data()));
      scales.push_back(source.scales);
      bits.push_back(source.bits);
    }
    std::byte* residual = server_.data() + run.elements.begin * kernels::BytesOf(residual_type_);
    const kernels::ReduceInput in = {
        .bits = bits.data(),
        .scales = scales.data(),
        .ranks = ranks_,
        .residual_in = has_feedback_ ? residual : nullptr,
        .residual_out = has_feedback_ ? residual : nullptr,
        .residual_type = residual_type_,
        .mask = Mask(run.elements.begin),
        .count = run.elements.count,
        .rule = Rule(),
        .output_type = type_,
        .is_sum = is_sum_,
    };
    if (block_ != 0) {
      EXPECT_TRUE(kernels_.reduce_blocks(in, block_, view.scales, view.bits));
      return;
    }
    kernels::TensorSum sum;
    kernels_.reduce_signs(in, view.bits, &sum);
    view.scales[0] = kernels::reference::OutputScale(kernels::reference::ScaleOf(sum, Rule()),
                                                     ranks_, is_sum_, type_);
    if (has_feedback_) kernels_.reduce_residual(in, view.scales[0]);
  }

  const json& golden_;
  const Kernels& kernels_;
  const size_t ranks_;
  const size_t count_;
  const size_t block_;
  const DataType type_;
  const DataType residual_type_;
  const bool has_feedback_;
  const bool is_sum_;
  const Partition chunks_;
  std::shared_ptr<const Cuts> cuts_;
  std::vector<std::vector<std::byte>> worker_;
  std::vector<std::byte> server_;  // of all chunks
  std::vector<std::byte> mask_;
};

class GoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTest, KernelsReproducePacketsAndResiduals) {
  const json golden = LoadGolden(GetParam());
  for (const Kernels* kernels : {&kReference, &kCpu}) {
    SCOPED_TRACE(kernels->name);
    Player player(golden, *kernels);
    for (const json& call : golden["calls"]) player.Play(call);
    player.CheckResiduals();
  }
}

TEST_P(GoldenTest, HeadersReproduceTheirBytes) {
  const json golden = LoadGolden(GetParam());
  CallDescriptor descriptor = {
      .comm_id = 0xc0ffee,
      .collective = Collective::kAllReduce,
      .count = golden["d"],
      .tensor_id = 7,
      .type = TypeNamed(golden["kind"]),
      .op = golden["op"] == "sum" ? ReduceOp::kSum : ReduceOp::kAvg,
      .codec = {.kind = golden["mode"] == "ef" ? CodecKind::kEf : CodecKind::kSign,
                .rule = golden["rule"] == "l1" ? ScaleRule::kL1 : ScaleRule::kL2,
                .block = golden["block"]},
      .chunk_alignment = golden["align"],
      .has_server_residual = true,
      .has_cuts = golden.contains("cuts"),
  };
  for (uint64_t number = 0; number < golden["calls"].size(); ++number) {
    const json& call = golden["calls"][number];
    descriptor.sequence = number;
    for (const int exchange : {1, 2}) {
      const auto expected = FromHex(call[exchange == 1 ? "header1" : "header2"]);
      auto decoded = DecodeHeader(expected);
      ASSERT_TRUE(decoded.ok()) << decoded.status().text();
      MessageHeader header = decoded.value();
      descriptor.mask_digest = header.call.mask_digest;
      if (golden.contains("cuts")) {
        const auto cuts = Cuts::Create(golden["cuts"].get<std::vector<size_t>>(), golden["d"]);
        EXPECT_EQ(header.call.mask_digest, cuts.value()->digest());
      }
      EXPECT_EQ(DescribeDifference(descriptor, header.call), "");
      EXPECT_EQ(header.exchange, exchange);
      const auto payload = FromHex(exchange == 1 ? call["exchange1"][0][1] : call["exchange2"][0]);
      EXPECT_EQ(header.payload_checksum,
                kernels::reference::ChecksumOf(payload.data(), payload.size()));
      HeaderBytes encoded;
      EncodeHeader(header, &encoded);
      EXPECT_EQ(HexOf(encoded.data(), encoded.size()), HexOf(expected.data(), expected.size()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenTest,
                         ::testing::Values("ef_fp32_l2_block", "ef_fp32_l1_tensor_sum",
                                           "ef_fp16_l2_tensor", "ef_bf16_l1_block_masked",
                                           "ef_fp32_l2_block_special", "ef_fp32_l2_cuts",
                                           "sign_fp32_l2_block"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace onebit
