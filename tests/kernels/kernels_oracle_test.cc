// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Composes whole compressed allreduces of kernel calls and compares them with numbers computed
// independently in fp64 from the papers' formulas: one worker scale per rank, one server scale per
// chunk.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/kernels.h"

namespace onebit::kernels {
namespace {

using Floats = std::vector<float>;

struct Kernels {
  const char* name;
  decltype(&cpu::CompressSigns) compress_signs;
  decltype(&cpu::CompressResidual) compress_residual;
  decltype(&cpu::ScaleOf) scale_of;
  decltype(&cpu::ReduceSigns) reduce_signs;
  decltype(&cpu::ReduceResidual) reduce_residual;
  decltype(&cpu::OutputScale) output_scale;
  decltype(&cpu::Decode) decode;
};

constexpr Kernels kAllKernels[] = {
    {"Reference", reference::CompressSigns, reference::CompressResidual, reference::ScaleOf,
     reference::ReduceSigns, reference::ReduceResidual, reference::OutputScale, reference::Decode},
    {"Cpu", cpu::CompressSigns, cpu::CompressResidual, cpu::ScaleOf, cpu::ReduceSigns,
     cpu::ReduceResidual, cpu::OutputScale, cpu::Decode}};

// The ranks of one allreduce and their residuals.
class Ranks {
 public:
  // Each rank has `chunk` elements, a multiple of 4; of all elements the first `count` are not
  // padding.
  Ranks(const Kernels& kernels, size_t ranks, size_t chunk, size_t count, ScaleRule rule)
      : kernels_(kernels),
        chunk_(chunk),
        count_(count),
        rule_(rule),
        worker_scales(ranks),
        worker_residuals(ranks, Floats(count)),
        server_scales(ranks),
        server_residuals(ranks) {
    for (size_t rank = 0; rank < ranks; ++rank) {
      server_residuals[rank].resize(ChunkCount(rank));
    }
  }

  Floats AllReduce(const std::vector<Floats>& x) {
    const size_t ranks = x.size();
    std::vector<std::vector<uint8_t>> bits(ranks, std::vector<uint8_t>(BitBytes(count_)));
    for (size_t rank = 0; rank < ranks; ++rank) {
      const CompressInput in = {.input = x[rank].data(),
                                .residual_in = worker_residuals[rank].data(),
                                .residual_out = worker_residuals[rank].data(),
                                .count = count_,
                                .rule = rule_};
      TensorSum sum;
      kernels_.compress_signs(in, bits[rank].data(), &sum);
      worker_scales[rank] = kernels_.scale_of(sum, rule_);
      kernels_.compress_residual(in, worker_scales[rank]);
    }
    Floats output(count_);
    for (size_t server = 0; server < ranks; ++server) Serve(server, bits, &output);
    return output;
  }

 private:
  size_t ChunkCount(size_t server) const {
    return std::clamp(count_, server * chunk_, (server + 1) * chunk_) - server * chunk_;
  }

  // Runs phase 1, the server's work, and phase 2 for one chunk.
  void Serve(size_t server, const std::vector<std::vector<uint8_t>>& bits, Floats* output) {
    const size_t begin = server * chunk_;
    const size_t count = ChunkCount(server);
    std::vector<std::vector<uint8_t>> received;
    std::vector<const uint8_t*> packets;
    std::vector<const float*> scales;
    for (size_t rank = 0; rank < bits.size(); ++rank) {
      received.push_back(Slice(bits[rank], begin, count));
      packets.push_back(received[rank].data());
      scales.push_back(&worker_scales[rank]);
    }
    const ReduceInput in = {.bits = packets.data(),
                            .scales = scales.data(),
                            .ranks = bits.size(),
                            .residual_in = server_residuals[server].data(),
                            .residual_out = server_residuals[server].data(),
                            .count = count,
                            .rule = rule_};
    TensorSum sum;
    std::vector<uint8_t> sent(BitBytes(count) + 1);
    kernels_.reduce_signs(in, sent.data(), &sum);
    server_scales[server] =
        kernels_.output_scale(kernels_.scale_of(sum, rule_), bits.size(), false, DataType::kF32);
    kernels_.reduce_residual(in, server_scales[server]);
    kernels_.decode(sent.data(), &server_scales[server], count, 0, nullptr, DataType::kF32,
                    output->data() + std::min(begin, count_));
  }

  static std::vector<uint8_t> Slice(const std::vector<uint8_t>& bits, size_t begin, size_t count) {
    std::vector<uint8_t> slice(BitBytes(count));
    for (size_t i = 0; i < count; ++i) {
      const unsigned bit = bits[(begin + i) / 8] >> ((begin + i) % 8) & 1u;
      slice[i / 8] = static_cast<uint8_t>(slice[i / 8] | bit << (i % 8));
    }
    return slice;
  }

  Kernels kernels_;
  size_t chunk_, count_;
  ScaleRule rule_;

 public:
  Floats worker_scales;
  std::vector<Floats> worker_residuals;
  Floats server_scales;
  std::vector<Floats> server_residuals;
};

class OracleTest : public testing::TestWithParam<Kernels> {};

// Expected values are rounded from the fp64 oracle, so results may differ by a few units of the
// last place.
void ExpectNear(const Floats& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 2e-6) << i;
}

const std::vector<Floats> kFirst = {{4, -3, 0, 1, -2, 1, -1, 0}, {-2, 1, 1, -1, 0, 1, 0, 0}};
const std::vector<Floats> kSecond = {{1, 2, -1, 3, 0, -3, 1, -1}, {1, -1, 0, 2, -2, 1, 3, -1}};

Floats Joined(const Floats& a, const Floats& b) {
  Floats joined = a;
  joined.insert(joined.end(), b.begin(), b.end());
  return joined;
}

// All values are dyadic, so results must be equal.
TEST_P(OracleTest, TwoRanksHalfByteChunksL1) {
  Ranks ranks(GetParam(), 2, 4, 8, ScaleRule::kL1);
  EXPECT_EQ(ranks.AllReduce(kFirst), (Floats{.5625, -.5625, .5625, .5625, -.75, .75, -.75, .75}));
  EXPECT_EQ(ranks.worker_scales, (Floats{1.5, .75}));
  EXPECT_EQ(ranks.server_scales, (Floats{.5625, .75}));
  EXPECT_EQ(ranks.worker_residuals[0], (Floats{2.5, -1.5, -1.5, -.5, -.5, -.5, .5, -1.5}));
  EXPECT_EQ(ranks.worker_residuals[1], (Floats{-1.25, .25, .25, -.25, -.75, .25, -.75, -.75}));
  EXPECT_EQ(ranks.server_residuals[0], (Floats{-.1875, .1875, .5625, -.1875}));
  EXPECT_EQ(ranks.server_residuals[1], (Floats{.375, .375, .375, .375}));

  EXPECT_EQ(ranks.AllReduce(kSecond),
            (Floats{.625, .625, .625, .625, -1.21875, 1.21875, 1.21875, -1.21875}));
  EXPECT_EQ(ranks.worker_scales, (Floats{2.125, 1.375}));
  EXPECT_EQ(ranks.worker_residuals[0],
            (Floats{1.375, -1.625, -.375, .375, 1.625, -1.375, -.625, -.375}));
  EXPECT_EQ(ranks.worker_residuals[1],
            (Floats{1.125, .625, -1.125, .375, -1.375, -.125, .875, -.375}));
  EXPECT_EQ(ranks.server_residuals[0], (Floats{-.4375, -.0625, -.4375, .9375}));
  EXPECT_EQ(ranks.server_residuals[1], (Floats{-.15625, -1.21875, .90625, -.15625}));
}

TEST_P(OracleTest, TwoRanksHalfByteChunksL2) {
  Ranks ranks(GetParam(), 2, 4, 8, ScaleRule::kL2);
  const double a = 0.8660254037844386, b = 1.118033988749895;
  ExpectNear(ranks.AllReduce(kFirst), {a, -a, a, a, -b, b, -b, b});
  EXPECT_EQ(ranks.worker_scales, (Floats{2, 1}));
  EXPECT_EQ(ranks.worker_residuals[0], (Floats{2, -1, -2, -1, 0, -1, 1, -2}));
  EXPECT_EQ(ranks.worker_residuals[1], (Floats{-1, 0, 0, 0, -1, 0, -1, -1}));
  ExpectNear(ranks.server_residuals[0], {-.3660254038, .3660254038, .6339745962, -.3660254038});
  ExpectNear(ranks.server_residuals[1], {.6180339887, .3819660113, .6180339887, .3819660113});

  const double c = 1.3079005357447449, d = 1.7054649889257953;
  ExpectNear(ranks.AllReduce(kSecond), {c, c, c, c, d, -d, d, -d});
  ExpectNear(ranks.worker_scales, {2.5495097567963922, 1.6955824957813168});
  ExpectNear(ranks.worker_residuals[0], {.4504902432, -1.5495097568, -.4504902432, -.5495097568,
                                         -2.5495097568, -1.4504902432, -.5495097568, -.4504902432});
  ExpectNear(ranks.worker_residuals[1], {-1.6955824958, .6955824958, -1.6955824958, .3044175042,
                                         -1.3044175042, -.6955824958, .3044175042, -.3044175042});
  ExpectNear(ranks.server_residuals[0], {.4486201868, -.5149115015, -1.10088957, .4486201868});
  ExpectNear(ranks.server_residuals[1], {-.6604673697, 1.6604673697, 1.0351151261, -.0351151261});
}

// Chunks of whole bytes and exact values, so results must be equal.
TEST_P(OracleTest, TwoRanksByteChunksL1) {
  Ranks ranks(GetParam(), 2, 8, 16, ScaleRule::kL1);
  const float a = .6171875, b = .75;
  EXPECT_EQ(ranks.AllReduce({Joined(kFirst[0], kSecond[0]), Joined(kFirst[1], kSecond[1])}),
            (Floats{a, -a, a, a, -a, a, -a, a, b, b, -b, b, b, -b, b, -b}));
  EXPECT_EQ(ranks.worker_scales, (Floats{1.5, 1.0625}));
  EXPECT_EQ(ranks.worker_residuals[0], (Floats{2.5, -1.5, -1.5, -.5, -.5, -.5, .5, -1.5, -.5, .5,
                                               .5, 1.5, -1.5, -1.5, -.5, .5}));
  EXPECT_EQ(ranks.worker_residuals[1],
            (Floats{-.9375, -.0625, -.0625, .0625, -1.0625, -.0625, -1.0625, -1.0625, -.0625, .0625,
                    -1.0625, .9375, -.9375, -.0625, 1.9375, .0625}));
  EXPECT_EQ(ranks.server_residuals[0], (Floats{-.3984375, .3984375, .6640625, -.3984375, .3984375,
                                               .6640625, .3984375, .6640625}));
  EXPECT_EQ(ranks.server_residuals[1],
            (Floats{.53125, -.53125, .53125, .53125, -.53125, .53125, .53125, -.53125}));

  const float c = 1.0478515625, d = .8984375;
  EXPECT_EQ(ranks.AllReduce({Joined(kSecond[0], kFirst[0]), Joined(kSecond[1], kFirst[1])}),
            (Floats{c, c, -c, c, -c, c, c, -c, d, -d, d, d, -d, d, d, d}));
  EXPECT_EQ(ranks.worker_scales, (Floats{2, 1.1484375}));
  EXPECT_EQ(ranks.worker_residuals[0], (Floats{1.5, -1.5, -.5, .5, 1.5, -1.5, -.5, -.5, 1.5, -.5,
                                               -1.5, .5, -1.5, 1.5, .5, -1.5}));
  EXPECT_EQ(ranks.worker_residuals[1],
            (Floats{-1.0859375, .0859375, 1.0859375, .9140625, -1.9140625, -.2109375, .7890625,
                    -.9140625, -.9140625, -.0859375, 1.0859375, 1.0859375, .2109375, -.2109375,
                    .7890625, -1.0859375}));
  EXPECT_EQ(ranks.server_residuals[0],
            (Floats{.1279296875, -.2236328125, .1376953125, .1279296875, -.1279296875, -.8095703125,
                    .9248046875, .1376953125}));
  EXPECT_EQ(ranks.server_residuals[1], (Floats{.05859375, -.05859375, .05859375, .05859375,
                                               -1.20703125, -.79296875, -.79296875, .14453125}));
}

// Ten elements in four chunks of eight: 8, 2, 0 and 0 take part, and padding is in no scale.
TEST_P(OracleTest, PadsAreInNoScale) {
  Ranks ranks(GetParam(), 4, 8, 10, ScaleRule::kL2);
  std::vector<Floats> x(4, Floats(10));
  for (size_t rank = 0; rank < 4; ++rank) {
    for (size_t k = 0; k < 10; ++k) {
      x[rank][k] = static_cast<float>((7 * k + 5 * rank + 2) % 11) - 5;
    }
  }
  const double a = 0.5415705766745416, b = 0.19679692483848388;
  ExpectNear(ranks.AllReduce(x), {-a, a, a, -a, a, -a, a, a, -b, b});
  ExpectNear(ranks.worker_scales,
             {3.3015148038438356, 2.91547594742265, 3.3166247903554, 2.91547594742265});
  ExpectNear(ranks.server_scales, {a, b, 0, 0});
  const double c = 1.9945492065867498, d = 1.4050302977211118;
  ExpectNear(ranks.AllReduce(x), {-c, -c, c, -c, -c, c, -c, -c, -d, d});
  ExpectNear(ranks.worker_scales,
             {4.025224003134671, 3.6531138123214144, 3.8987821836741787, 3.6531138123214144});
  ExpectNear(ranks.server_scales, {c, d, 0, 0});
  ExpectNear(ranks.server_residuals[1], {1.2505856571796068, .5759712489811006});
}

// Every input has become output or is in a residual.
TEST_P(OracleTest, NothingIsLostOverManyCalls) {
  Ranks ranks(GetParam(), 2, 8, 16, ScaleRule::kL2);
  std::vector<double> sent(16), received(16);
  for (int call = 0; call < 100; ++call) {
    std::vector<Floats> x(2, Floats(16));
    for (size_t i = 0; i < 16; ++i) {
      x[0][i] = static_cast<float>(std::sin(0.7 * call + static_cast<double>(i)));
      x[1][i] = static_cast<float>(std::cos(0.3 * call * static_cast<double>(i)));
      sent[i] += (x[0][i] + x[1][i]) / 2;
    }
    const Floats output = ranks.AllReduce(x);
    for (size_t i = 0; i < 16; ++i) received[i] += output[i];
  }
  for (size_t i = 0; i < 16; ++i) {
    const double kept = (ranks.worker_residuals[0][i] + ranks.worker_residuals[1][i]) / 2 +
                        ranks.server_residuals[i / 8][i % 8];
    EXPECT_NEAR(received[i] + kept, sent[i], 1e-4) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Implementations, OracleTest, testing::ValuesIn(kAllKernels),
                         [](const testing::TestParamInfo<Kernels>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace onebit::kernels
