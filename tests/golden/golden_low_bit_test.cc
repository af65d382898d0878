// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Codecs with a code for each element against golden files that make_golden_low_bit.py and
// make_golden_bf16.py wrote from the text of the format alone: packets of both exchanges from the
// kernels, headers, and outputs and residuals of whole calls from the public API down.
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "codec/packet.h"
#include "kernels/bf16.h"
#include "plan/partition.h"
#include "tests/golden/golden_calls.h"

namespace onebit::testing {
namespace {

using kernels::DataType;
using kernels::LowBitCodec;
using nlohmann::json;

constexpr uint32_t kServerStream = 65'536;

struct CodecName {
  const char* name;
  onebitCodec_t number;
};
constexpr CodecName kCodecs[] = {{"fp4", onebitCodecFp4},
                                 {"int8", onebitCodecInt8},
                                 {"uint8mm", onebitCodecUint8mm},
                                 {"int2", onebitCodecInt2},
                                 {"int8s", onebitCodecInt8Stochastic},  // as it was
                                 {"int8s_up", onebitCodecInt8Stochastic},
                                 {"bf16", onebitCodecBf16}};

const CodecName& CodecNamed(const std::string& name) {
  for (const CodecName& codec : kCodecs) {
    if (name == codec.name) return codec;
  }
  throw std::runtime_error("no codec " + name);
}

Codec CodecOf(const json& golden) {
  Codec codec = FindCodec(CodecNamed(golden["codec"]).number)->codec;
  codec.kind = codec.KindIn(golden["mode"] == "ef");
  codec.block = golden["block"];
  return codec;
}

// Functions of bf16, by the signatures of the others.
template <auto kCompress>
kernels::LowBitResult Compress(const kernels::CompressInput& in, kernels::LowBitFormat,
                               const kernels::Draws&, kernels::LowBitPacket out) {
  return kCompress(in, out);
}
template <auto kReduce>
kernels::LowBitResult Reduce(const kernels::LowBitReduceInput& in, kernels::LowBitFormat,
                             const kernels::Draws&, kernels::LowBitPacket out) {
  return kReduce(in, out);
}
template <auto kAverage>
kernels::LowBitResult Decode(kernels::LowBitPacketView packet, kernels::LowBitFormat, size_t count,
                             const uint8_t* mask, DataType type, void* output) {
  return kAverage({.packets = &packet,
                   .ranks = 1,
                   .mask = mask,
                   .count = count,
                   .output_type = type,
                   .is_sum = true},
                  output);
}

struct Functions {
  const char* name;
  decltype(&kernels::cpu::LowBitCompress) compress;
  decltype(&kernels::cpu::LowBitReduce) reduce;
  decltype(&kernels::cpu::LowBitDecode) decode;
};
constexpr Functions kFunctions[] = {
    {"reference", kernels::reference::LowBitCompress, kernels::reference::LowBitReduce,
     kernels::reference::LowBitDecode},
    {"cpu", kernels::cpu::LowBitCompress, kernels::cpu::LowBitReduce, kernels::cpu::LowBitDecode}};
constexpr Functions kBf16Functions[] = {
    {"reference", Compress<kernels::reference::Bf16Compress>,
     Reduce<kernels::reference::Bf16Reduce>, Decode<kernels::reference::Bf16Average>},
    {"cpu", Compress<kernels::cpu::Bf16Compress>, Reduce<kernels::cpu::Bf16Reduce>,
     Decode<kernels::cpu::Bf16Average>}};

std::span<const Functions> FunctionsOf(const json& golden) {
  if (golden["codec"] == "bf16") return kBf16Functions;
  return kFunctions;
}

// Plays all ranks of one golden case, by kernels alone.
class Player {
 public:
  Player(const json& golden, const Functions& functions)
      : golden_(golden),
        functions_(functions),
        ranks_(golden["n"]),
        count_(golden["d"]),
        type_(TypeNamed(golden["kind"])),
        residual_type_(TypeNamed(golden["residual"])),
        has_feedback_(golden["mode"] == "ef"),
        format_{CodecOf(golden)},
        chunks_(count_, ranks_, golden["align"], 1, 0),
        worker_(ranks_, std::vector<std::byte>(count_ * kernels::BytesOf(residual_type_))),
        server_(count_ * kernels::BytesOf(residual_type_)),
        mask_(MaskOf(golden)) {}

  void Play(const json& call) {
    std::vector<std::byte> output(count_ * kernels::BytesOf(type_));
    for (size_t j = 0; j < ranks_; ++j) {
      const ElementRange range = chunks_.Chunk(j);
      const PacketShape shape = ShapeOf(range.count, format_);
      std::vector<std::vector<std::byte>> packets;
      for (size_t r = 0; r < ranks_; ++r) {
        packets.push_back(Compress(r, range, FromHex(call["x"][r])));
        EXPECT_EQ(HexOf(packets[r].data(), packets[r].size()), call["exchange1"][r][j])
            << "rank " << r << " chunk " << j;
        EXPECT_TRUE(CheckForm(packets[r], shape).ok());
      }
      std::vector<std::byte> mean = Reduce(j, range, packets);
      EXPECT_EQ(HexOf(mean.data(), mean.size()), call["exchange2"][j]) << "chunk " << j;
      Decode(range, mean, &output);
    }
    EXPECT_EQ(HexOf(output.data(), output.size()), call["out"]);
    ++calls_;
  }

  // The same without what ranks send: only decodes packets.
  void Read(const json& call) {
    std::vector<std::byte> output(count_ * kernels::BytesOf(type_));
    for (size_t j = 0; j < ranks_; ++j) {
      std::vector<std::byte> mean = FromHex(call["exchange2"][j]);
      EXPECT_TRUE(CheckForm(mean, ShapeOf(chunks_.Chunk(j).count, format_)).ok());
      Decode(chunks_.Chunk(j), mean, &output);
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

  const PacketFormat& format() const { return format_; }

 private:
  static kernels::LowBitPacketView View(std::vector<std::byte>& packet, const PacketShape& shape) {
    const kernels::LowBitPacket view = LowBitViewOf(packet.data(), shape);
    return {view.scales, view.minimums, view.codes};
  }
  const uint8_t* Mask(size_t element) const {
    return mask_.empty() ? nullptr : mask_.data() + element / 8;
  }
  kernels::Draws DrawsOf(size_t element, size_t stream) const {
    return {.seed = golden_["seed"],
            .first = element,
            .epoch = calls_,
            .tensor = kGoldenTensor,
            .stream = static_cast<uint32_t>(stream)};
  }
  std::byte* Residual(std::vector<std::byte>& residual, size_t element) const {
    return has_feedback_ ? residual.data() + element * kernels::BytesOf(residual_type_) : nullptr;
  }

  std::vector<std::byte> Compress(size_t r, ElementRange range, const std::vector<std::byte>& x) {
    const PacketShape shape = ShapeOf(range.count, format_);
    std::vector<std::byte> packet(shape.bytes());
    if (range.count == 0) return packet;
    const kernels::CompressInput in = {
        .input = x.data() + range.begin * kernels::BytesOf(type_),
        .input_type = type_,
        .residual_in = Residual(worker_[r], range.begin),
        .residual_out = Residual(worker_[r], range.begin),
        .residual_type = residual_type_,
        .mask = Mask(range.begin),
        .count = range.count,
    };
    const kernels::LowBitResult result =
        functions_.compress(in, format_.codec.low_bit_format(), DrawsOf(range.begin, r),
                            LowBitViewOf(packet.data(), shape));
    EXPECT_TRUE(result.is_finite);
    return packet;
  }

  void Decode(ElementRange range, std::vector<std::byte>& packet, std::vector<std::byte>* output) {
    if (range.count == 0) return;
    functions_.decode(View(packet, ShapeOf(range.count, format_)), format_.codec.low_bit_format(),
                      range.count, Mask(range.begin), type_,
                      output->data() + range.begin * kernels::BytesOf(type_));
  }

  std::vector<std::byte> Reduce(size_t j, ElementRange range,
                                std::vector<std::vector<std::byte>>& packets) {
    const PacketShape shape = ShapeOf(range.count, format_);
    std::vector<std::byte> mean(shape.bytes());
    if (range.count == 0) return mean;
    std::vector<kernels::LowBitPacketView> views;
    for (auto& packet : packets) views.push_back(View(packet, shape));
    const kernels::LowBitReduceInput in = {
        .packets = views.data(),
        .ranks = ranks_,
        .residual_in = Residual(server_, range.begin),
        .residual_out = Residual(server_, range.begin),
        .residual_type = residual_type_,
        .mask = Mask(range.begin),
        .count = range.count,
        .output_type = type_,
        .is_sum = golden_["op"] == "sum",
    };
    EXPECT_TRUE(functions_
                    .reduce(in, format_.codec.low_bit_format(),
                            DrawsOf(range.begin, kServerStream + j),
                            LowBitViewOf(mean.data(), shape))
                    .is_finite);
    return mean;
  }

  const json& golden_;
  const Functions& functions_;
  const size_t ranks_;
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

class GoldenLowBitTest : public ::testing::TestWithParam<const char*> {
 protected:
  const json golden_ = LoadGolden(GetParam());
};

TEST_P(GoldenLowBitTest, KernelsReproducePacketsAndResiduals) {
  for (const Functions& functions : FunctionsOf(golden_)) {
    SCOPED_TRACE(functions.name);
    Player player(golden_, functions);
    for (const json& call : golden_["calls"]) player.Play(call);
    player.CheckResiduals();
  }
}

TEST_P(GoldenLowBitTest, HeadersReproduceTheirBytes) {
  const Player player(golden_, kFunctions[0]);
  CallDescriptor descriptor = GoldenDescriptor(golden_);
  descriptor.codec = player.format().codec;
  descriptor.has_server_residual = true;
  for (uint64_t number = 0; number < golden_["calls"].size(); ++number) {
    descriptor.sequence = number;
    ExpectHeader(golden_["calls"][number]["header1"], descriptor);
    ExpectHeader(golden_["calls"][number]["header2"], descriptor);
  }
}

TEST_P(GoldenLowBitTest, CallsReproduceOutputsAndResiduals) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.codec = CodecNamed(golden_["codec"]).number;
  ExpectCalls(golden_, config);
}

// Stochastic rounding with the scales that it had before they were rounded up. Nothing makes such
// packets any more.
class FormerStochasticTest : public ::testing::Test {
 protected:
  const json golden_ = LoadGolden("int8s_plain_fp32");
};

TEST_F(FormerStochasticTest, PacketsAreStillRead) {
  for (const Functions& functions : kFunctions) {
    SCOPED_TRACE(functions.name);
    Player player(golden_, functions);
    for (const json& call : golden_["calls"]) player.Read(call);
  }
}

TEST_F(FormerStochasticTest, HeadersAreReadAndDiffer) {
  CallDescriptor there = GoldenDescriptor(golden_);
  there.codec.kind = CodecKind::kLowBit;
  there.codec.low_bit = LowBitCodec::kInt8Stochastic;
  there.codec.has_former_scales = true;
  there.has_server_residual = true;
  CallDescriptor here = there;
  here.codec.has_former_scales = false;
  EXPECT_NE(here, there);
  EXPECT_EQ(DescribeDifference(here, there),
            "scales of int8s (use one version of onebit on all ranks) rounded up here, rounded to "
            "nearest there");
  for (uint64_t number = 0; number < golden_["calls"].size(); ++number) {
    there.sequence = number;
    ExpectHeader(golden_["calls"][number]["header1"], there);
    ExpectHeader(golden_["calls"][number]["header2"], there);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenLowBitTest,
                         ::testing::Values("fp4_ef_fp32", "fp4_plain_bf16_sum_masked",
                                           "int8_ef_fp16_sum", "uint8mm_ef_fp32",
                                           "int2_ef_bf16_masked", "int8s_up_plain_fp32",
                                           "bf16_plain_fp32", "bf16_ef_fp32",
                                           "bf16_ef_fp16_sum_masked"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace onebit::testing
