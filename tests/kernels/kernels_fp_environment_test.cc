// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Kernels do not depend on the caller's floating-point control register, and do not change it.
#include <gtest/gtest.h>

#include <cfenv>
#include <cstring>

#include "kernels/kernels.h"
#include "kernels/lamb.h"
#include "kernels/low_bit.h"
#include "kernels/optimizer.h"
#include "kernels/zero_one.h"
#include "tests/kernels/compress_case.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/low_bit_case.h"
#include "tests/kernels/packet_case.h"
#include "tests/kernels/test_data.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace onebit::kernels {
namespace {

uint64_t ControlRegister() {
#if defined(__x86_64__)
  return _mm_getcsr();
#elif defined(__aarch64__)
  uint64_t fpcr;
  asm volatile("mrs %0, fpcr" : "=r"(fpcr));
  return fpcr;
#else
  return static_cast<uint64_t>(fegetround());
#endif
}

void SetControlRegister(uint64_t value) {
#if defined(__x86_64__)
  _mm_setcsr(static_cast<unsigned>(value));
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" : : "r"(value));
#else
  fesetround(static_cast<int>(value));
#endif
}

// Flushes to zero, treats denormals as zero, and rounds towards zero.
uint64_t HostileRegister() {
#if defined(__x86_64__)
  return 0x1F80 | 0x8000 | 0x0040 | 0x6000;
#elif defined(__aarch64__)
  return (uint64_t{1} << 24) | (uint64_t{3} << 22);
#else
  return static_cast<uint64_t>(FE_TOWARDZERO);
#endif
}

class FpEnvironmentTest : public EachTarget {
 protected:
  // Makes a call under the defaults and under hostile settings.
  template <class Call>
  void ExpectNoEffect(const Call& call) {
    const uint64_t defaults = ControlRegister();
    const auto expected = call();
    const uint64_t hostile = HostileRegister();
    SetControlRegister(hostile);
    const auto actual = call();
    const uint64_t after = ControlRegister();
    SetControlRegister(defaults);
    EXPECT_EQ(after, hostile);
    EXPECT_TRUE(actual == expected);
  }

  Random random_{8};
};

TEST_P(FpEnvironmentTest, CompressIsUnaffected) {
  CompressRunner runner;
  for (const Numbers numbers : {Numbers::kDenormal, Numbers::kTiny, Numbers::kOrdinary}) {
    for (const DataType type : kAllTypes) {
      for (const size_t block : {0, 64}) {
        for (const ScaleRule rule : {ScaleRule::kL1, ScaleRule::kL2}) {
          const CompressCase c =
              RandomCase(type, DataType::kBf16, true, rule, 300, block, numbers, random_);
          ExpectNoEffect([&] { return runner.Run(kCpuCompress, c, Edge::kHigh, false); });
          ExpectNoEffect([&] { return runner.Run(kReferenceCompress, c, Edge::kHigh, false); });
        }
      }
    }
  }
}

TEST_P(FpEnvironmentTest, ServerIsUnaffected) {
  PlacedPackets placed(3);
  for (const Numbers numbers : {Numbers::kDenormal, Numbers::kOrdinary}) {
    const PacketCase c = RandomPackets(3, 300, 64, numbers, random_);
    ReduceInput in = placed.Place(c, Edge::kHigh);
    for (const auto& average : {cpu::DecodeAverage, reference::DecodeAverage}) {
      ExpectNoEffect([&] {
        std::vector<float> output(c.count);
        average(in, c.block, output.data());
        return output;
      });
    }
    const Bytes residual = RandomElements(DataType::kF32, numbers, c.count, random_);
    for (const auto& reduce : {cpu::ReduceBlocks, reference::ReduceBlocks}) {
      ExpectNoEffect([&] {
        Bytes kept = residual;
        in.residual_in = in.residual_out = kept.data();
        in.is_sum = true;
        std::vector<float> scales(5);
        Bytes bits(BitBytes(c.count));
        reduce(in, 64, scales.data(), bits.data());
        in.residual_in = in.residual_out = nullptr;
        return std::make_tuple(kept, scales, bits);
      });
    }
  }
}

TEST_P(FpEnvironmentTest, ScalarsAreUnaffected) {
  const TensorSum sum = {.sum = 1e-80, .element_count = 3};
  for (const auto& scale_of : {cpu::ScaleOf, reference::ScaleOf}) {
    ExpectNoEffect([&] { return scale_of(sum, ScaleRule::kL2); });
    ExpectNoEffect([&] { return scale_of(sum, ScaleRule::kL1); });
  }
  for (const auto& output_scale : {cpu::OutputScale, reference::OutputScale}) {
    ExpectNoEffect([&] { return output_scale(0.1f, 7, true, DataType::kF32); });
    ExpectNoEffect([&] { return output_scale(1e-40f, 7, true, DataType::kBf16); });
    ExpectNoEffect([&] { return output_scale(1e-7f, 7, true, DataType::kF16); });
  }
}

TEST_P(FpEnvironmentTest, DenseAndDecodeAreUnaffected) {
  for (const DataType type : kAllTypes) {
    const Bytes a = RandomElements(type, Numbers::kDenormal, 100, random_);
    const Bytes b = RandomElements(type, Numbers::kOrdinary, 100, random_);
    const void* const inputs[] = {a.data(), b.data(), a.data()};
    const float factors[] = {2, 0.5f, 3};
    for (const auto& reduce : {cpu::DenseReduce, reference::DenseReduce}) {
      for (const DenseTerms& terms : {DenseTerms{}, DenseTerms{.divisor = 7, .factors = factors}}) {
        ExpectNoEffect([&] {
          Bytes output(a.size());
          reduce(inputs, 3, 100, type, DenseOp::kAverage, output.data(), terms);
          return output;
        });
      }
    }
  }
  const Bytes bits = RandomSigns(100, random_);
  const float scale = 0x1p-24f;  // subnormal in fp16
  ExpectNoEffect([&] {
    Bytes output(200);
    cpu::Decode(bits.data(), &scale, 100, 0, nullptr, DataType::kF16, output.data());
    return output;
  });
}

TEST_P(FpEnvironmentTest, OptimizerIsUnaffected) {
  for (const Numbers numbers : {Numbers::kDenormal, Numbers::kOrdinary}) {
    const Bytes g = RandomElements(DataType::kF32, numbers, 100, random_);
    for (const auto& step : {cpu::AdamDense, reference::AdamDense}) {
      ExpectNoEffect([&] {
        std::vector<float> x(100, 1e-39f), m(100, 1e-40f), v(100, 1e-41f);
        step({.x = x.data(),
              .m = m.data(),
              .v = v.data(),
              .input = g.data(),
              .count = 100,
              .lr = 0.1f,
              .beta1 = 0.9f,
              .one_minus_beta1 = 0.1f,
              .beta2 = 0.99f,
              .one_minus_beta2 = 0.01f,
              .eps = 1e-8f});
        return std::make_tuple(x, m, v);
      });
    }
    ExpectNoEffect([&] { return cpu::SumOfSquares(g.data(), DataType::kF32, 100); });
    ExpectNoEffect([&] { return cpu::SumOfMagnitudes(g.data(), DataType::kF32, 100); });
    ExpectNoEffect([&] {
      Bytes mask(13);
      cpu::MaskOfNonzero(reinterpret_cast<const float*>(g.data()), 100, mask.data());
      return mask;
    });
  }
}

TEST_P(FpEnvironmentTest, LambIsUnaffected) {
  for (const Numbers numbers : {Numbers::kDenormal, Numbers::kTiny, Numbers::kOrdinary}) {
    const Bytes g = RandomElements(DataType::kF32, numbers, 100, random_);
    for (const auto& step :
         {cpu::LambDense, cpu::LambFrozen, reference::LambDense, reference::LambFrozen}) {
      ExpectNoEffect([&] {
        std::vector<float> x(100, 1e-39f), m(100, 1e-40f), v(100, 1e-41f), v_fresh(100, 1e-41f);
        const LambNorms norms = step({.x = x.data(),
                                      .m = m.data(),
                                      .v = v.data(),
                                      .v_fresh = v_fresh.data(),
                                      .input = g.data(),
                                      .count = 100,
                                      .beta1 = 0.9f,
                                      .one_minus_beta1 = 0.1f,
                                      .beta2 = 0.99f,
                                      .one_minus_beta2 = 0.01f,
                                      .eps = 1e-8f,
                                      .weight_decay = 0.01f});
        return std::make_tuple(m, v, v_fresh, norms.x_squared, norms.update_squared,
                               norms.decayed_squared, norms.max_ratio);
      });
    }
  }
}

TEST_P(FpEnvironmentTest, ZeroOneIsUnaffected) {
  for (const Numbers numbers : {Numbers::kDenormal, Numbers::kTiny, Numbers::kOrdinary}) {
    const Bytes g = RandomElements(DataType::kF32, numbers, 100, random_);
    for (const auto& step :
         {cpu::ZeroOneLocal, cpu::ZeroOneSync, reference::ZeroOneLocal, reference::ZeroOneSync}) {
      ExpectNoEffect([&] {
        std::vector<float> x(100, 1e-39f), m(100, 1e-40f), u(100, 1e-39f), x_sync(100, 1e-39f);
        const std::vector<float> v(100, 1e-41f);
        step({.x = x.data(),
              .m = m.data(),
              .u = u.data(),
              .x_sync = x_sync.data(),
              .v = v.data(),
              .input = g.data(),
              .count = 100,
              .lr = 0.1f,
              .beta1 = 0.9f,
              .one_minus_beta1 = 0.1f,
              .eps = 1e-8f,
              .weight_decay = 0.01f,
              .lr_sum = 0.3f});
        return std::make_tuple(x, m, u, x_sync);
      });
    }
    for (const auto& accumulate : {cpu::ZeroOneAccumulate, reference::ZeroOneAccumulate}) {
      ExpectNoEffect([&] {
        std::vector<float> m(100, 1e-40f), u(100, 1e-39f), out(100);
        accumulate({.m = m.data(),
                    .u = u.data(),
                    .input = g.data(),
                    .count = 100,
                    .lr = 0.1f,
                    .beta1 = 0.9f,
                    .one_minus_beta1 = 0.1f},
                   out.data());
        return out;
      });
    }
    for (const auto& refresh : {cpu::RefreshVariance, reference::RefreshVariance}) {
      ExpectNoEffect([&] {
        const std::vector<float> v(100, 1e-41f);
        std::vector<float> out(100);
        refresh(v.data(), g.data(), DataType::kF32, 0.3f, 0.99f, 0.01f, 100, out.data());
        return out;
      });
    }
  }
}

TEST_P(FpEnvironmentTest, LowBitIsUnaffected) {
  LowBitRunner runner(3);
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    const LowBitFormat format = {codec, 64};
    for (const Numbers numbers : {Numbers::kDenormal, Numbers::kTiny, Numbers::kOrdinary}) {
      const Bytes input = RandomElements(DataType::kF32, numbers, 300, random_);
      std::optional<Bytes> residual;
      if (HasResidual(codec)) {
        residual = RandomElements(DataType::kF32, numbers, 300, random_);
      }
      const LowBitPacketCase packets = RandomLowBitPackets(format, 3, 300, numbers, random_);
      for (const LowBitKernels& kernels : {kCpuLowBit, kReferenceLowBit}) {
        ExpectNoEffect([&] {
          return runner.Compress(kernels, {.count = 300}, format, {}, input, std::nullopt, residual,
                                 false, Edge::kHigh);
        });
        ExpectNoEffect([&] {
          return runner.Reduce(kernels, {}, packets, {}, std::nullopt, residual, false,
                               Edge::kHigh);
        });
        ExpectNoEffect(
            [&] { return runner.Average(kernels, {}, packets, std::nullopt, Edge::kHigh); });
        ExpectNoEffect([&] {
          return runner.DecodeOne(kernels, packets, DataType::kF16, std::nullopt, Edge::kHigh);
        });
        ExpectNoEffect([&] {
          return runner.AddDelta(kernels, packets, DataType::kF32, std::nullopt, input, false,
                                 Edge::kHigh);
        });
      }
    }
  }
}

// Flags raised inside a kernel must not reach the caller.
TEST_P(FpEnvironmentTest, ExceptionFlagsDoNotLeak) {
  CompressRunner runner;
  const CompressCase c = RandomCase(DataType::kF32, DataType::kF32, false, ScaleRule::kL2, 100, 64,
                                    Numbers::kHuge, random_);
  std::feclearexcept(FE_ALL_EXCEPT);
  runner.Run(kCpuCompress, c, Edge::kHigh, false);
  EXPECT_EQ(std::fetestexcept(FE_OVERFLOW | FE_INVALID | FE_INEXACT), 0);
}

ONEBIT_TEST_EACH_TARGET(FpEnvironmentTest);

}  // namespace
}  // namespace onebit::kernels
