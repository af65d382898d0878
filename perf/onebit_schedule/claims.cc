// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Settings come from the papers' experiments and from the example scripts published with them.
#include "perf/onebit_schedule/claims.h"

#include <array>
#include <cstdint>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "perf/onebit_schedule/policy_run.h"
#include "perf/onebit_schedule/volume.h"

namespace onebit::schedule {
namespace {

// The steps of two phases of pre-training, and the dense ones at the start of each.
struct Training {
  uint64_t steps = 0;
  uint64_t dense_steps = 0;
  double dense_share() const {
    return static_cast<double>(dense_steps) / static_cast<double>(steps);
  }
};
constexpr Training kBertLargePhase1 = {152'000, 23'000};
constexpr Training kBertLarge = {152'000 + 10'000, 23'000 + 1'500};
constexpr Training kBertBase = {118'000 + 22'000, 16'000 + 1'500};
constexpr Training kSquad = {1'848, 400};
constexpr Training kLambPhase1 = {5'993, 1'000};
constexpr Training kLamb = {5'993 + 555, 1'000 + 107};

constexpr double kBlogShareBert = 0.15;
constexpr double kBlogShareSquad = 0.25;

// 0/1 Adam on BERT.
constexpr uint64_t kVarFreezeStep = 12'500;
// DeepSpeed's example of phase 2 resumes from a checkpoint of this step, with this freeze.
constexpr uint64_t kResumedAt = 152'511;
constexpr uint64_t kResumedFreezeStep = 155'000;
constexpr uint64_t kResumedSteps = 10'000;

Claim Factor(std::string claim, double claimed, std::string inputs, double computed,
             std::string remark = "") {
  return {.claim = std::move(claim),
          .inputs = std::move(inputs),
          .computed = computed,
          .unit = Unit::kFactor,
          .claimed = claimed,
          .remark = std::move(remark)};
}

Claim Percent(std::string claim, double claimed, std::string inputs, double share) {
  return {.claim = std::move(claim),
          .inputs = std::move(inputs),
          .computed = 100 * share,
          .unit = Unit::kPercent,
          .claimed = claimed};
}

std::vector<Claim> OneBitVolumes() {
  const auto reduction = [](double dense_share) {
    return Reduction(BitsPerStep(dense_share, 16), 16);
  };
  const auto saved = [](int dense_bits) { return 1 - BitsPerStep(0.0, dense_bits) / dense_bits; };
  const std::string adam = "1-bit Adam: volume up to 5x less";
  const std::string squad = "1-bit Adam, SQuAD: volume 3.4x less";
  const std::string lamb = "1-bit LAMB: volume up to 4.6x less";
  return {
      Factor(adam, 5, "F 16, T_w/T 15 %", reduction(kBlogShareBert)),
      Factor(adam, 5, "F 16, BERT-Large, T_w 23000 of T 152000",
             reduction(kBertLargePhase1.dense_share())),
      Factor(adam, 5, "F 16, the same and 1500 of 10000", reduction(kBertLarge.dense_share())),
      Factor(adam, 5, "F 16, BERT-Base, 16000 of 118000 and 1500 of 22000",
             reduction(kBertBase.dense_share())),
      Factor(squad, 3.4, "F 16, T_w/T 25 %", reduction(kBlogShareSquad)),
      Factor(squad, 3.4, "F 16, 400 of 1848", reduction(kSquad.dense_share()),
             fmt::format("25 % looks like {:.1f} % rounded up", 100 * kSquad.dense_share())),
      Percent("1-bit Adam: saves 97 % of fp32", 97, "F 32, compressed steps only", saved(32)),
      Percent("1-bit Adam: saves 94 % of fp16", 94, "F 16, compressed steps only", saved(16)),
      Factor(lamb, 4.6, "F 16, BERT-Large, 1000 of 5993", reduction(kLambPhase1.dense_share())),
      Factor(lamb, 4.6, "F 16, the same and 107 of 555", reduction(kLamb.dense_share())),
  };
}

std::vector<Claim> Speedups() {
  return {
      Factor("1-bit Adam, BERT-Large, Ethernet: 3.5x faster", 3.5,
             "T_w/T 15 %, compressed steps 6.6x", Speedup(kBlogShareBert, 6.6)),
      Factor("1-bit Adam, SQuAD, Ethernet: 2.7x faster", 2.7, "T_w/T 25 %, compressed steps 6.2x",
             Speedup(kBlogShareSquad, 6.2)),
      Factor("1-bit Adam, BERT-Large, InfiniBand: 2.7x faster", 2.7,
             "T_w/T 15 %, compressed steps 2x", Speedup(kBlogShareBert, 2),
             "2.7x looks like the number of SQuAD"),
      Factor("1-bit Adam, BERT-Large: 3.3x faster", 3.3, "23000 of 152000, compressed steps 5.48x",
             Speedup(kBertLargePhase1.dense_share(), 5.48)),
      Factor("1-bit Adam, SQuAD: 2.9x faster", 2.9, "400 of 1848, compressed steps 6.17x",
             Speedup(kSquad.dense_share(), 6.17)),
      {.claim = "1-bit LAMB: 2.8x faster",
       .inputs = "1000 of 5993; what compressed steps must reach",
       .computed = CompressedSpeedupFor(kLambPhase1.dense_share(), 2.8),
       .remark = "no published figure known to us"},
  };
}

StepCounts CountsOfPaper(uint64_t steps) {
  onebitPolicyConfig_t config = ONEBIT_POLICY_CONFIG_INIT;
  config.algorithm = onebitAlgorithmZeroOneAdam;
  config.varFreezeStep = kVarFreezeStep;
  return RunSteps(config, {}, 0, steps - 1).counts;
}

// Returns the bits per element and step of DeepSpeed's two phases; a resumed run restarts its
// intervals.
double ResumedBitsPerStep(int dense_bits) {
  onebitPolicyConfig_t config = ONEBIT_POLICY_CONFIG_INIT;
  config.algorithm = onebitAlgorithmZeroOneAdam;
  config.variant = onebitVariantDeepSpeed;
  config.varFreezeStep = kVarFreezeStep;
  const StepCounts first = RunSteps(config, {}, 1, kResumedAt).counts;
  config.varFreezeStep = kResumedFreezeStep - kResumedAt;
  const StepCounts second = RunSteps(config, {}, 1, kResumedSteps).counts;
  return static_cast<double>(TotalBits(first, dense_bits) + TotalBits(second, dense_bits)) /
         static_cast<double>(kResumedAt + kResumedSteps);
}

std::vector<Claim> ZeroOneRounds(const StepCounts& large, const StepCounts& phase1,
                                 const StepCounts& base) {
  const std::string claim = "0/1 Adam: 54 % fewer rounds than 1-bit Adam";
  std::vector<Claim> claims;
  for (const auto& [inputs, counts] : {std::pair{"BERT-Large, 152000 + 10000 steps", large},
                                       {"BERT-Large, 152000 steps", phase1},
                                       {"BERT-Base, 118000 + 22000 steps", base}}) {
    claims.push_back(Percent(claim, 54, inputs, RoundsSaved(counts)));
  }
  return claims;
}

std::vector<Claim> ZeroOneVolumes(const StepCounts& large, const StepCounts& phase1,
                                  const StepCounts& base) {
  struct Case {
    const char* model;
    const StepCounts& counts;
    const Training& one_bit_adam;
    int dense_bits;
  };
  std::vector<Claim> claims;
  for (const Case& one : {Case{"BERT-Large", large, kBertLarge, 16},
                          {"BERT-Large", large, kBertLarge, 32},
                          {"BERT-Base", base, kBertBase, 16},
                          {"BERT-Base", base, kBertBase, 32}}) {
    const double bits = BitsPerStep(one.counts, one.dense_bits);
    const double one_bit_bits = BitsPerStep(one.one_bit_adam.dense_share(), one.dense_bits);
    const std::string inputs =
        fmt::format("{}, F {}, B {}: {:.3f} against {:.3f} bits a step", one.model, one.dense_bits,
                    one.dense_bits + 1, bits, one_bit_bits);
    for (const auto& [claim, claimed] :
         {std::pair{"0/1 Adam (ICLR): volume up to 87 % less than 1-bit Adam", 87},
          {"0/1 Adam (arXiv v1): volume up to 90 % less than 1-bit Adam", 90}}) {
      claims.push_back(Percent(claim, claimed, inputs, 1 - bits / one_bit_bits));
    }
  }
  // Returns T_w/T of a 1-bit Adam that sends this many bits: V = 16 w + (1 - w).
  const auto dense_share_for = [](double bits_per_step) { return (bits_per_step - 1) / 15; };
  const std::string published =
      fmt::format("1-bit Adam had {:.1f} %", 100 * kBertLarge.dense_share());
  for (const auto& [inputs, counts, saved] :
       {std::tuple{"BERT-Large, F 16, 87 %, 152000 + 10000 steps", large, 0.87},
        {"BERT-Large, F 16, 90 %, 152000 steps", phase1, 0.90}}) {
    claims.push_back({.claim = "T_w/T of 1-bit Adam that these claims take",
                      .inputs = inputs,
                      .computed = 100 * dense_share_for(BitsPerStep(counts, 16) / (1 - saved)),
                      .unit = Unit::kPercent,
                      .remark = published});
  }
  return claims;
}

std::vector<Claim> ZeroOneAgainstAdam(const StepCounts& large, const StepCounts& phase1) {
  std::vector<Claim> claims;
  for (const auto& [inputs, bits] :
       {std::pair{"F 16, B 17, 152000 + 10000 steps", BitsPerStep(large, 16)},
        {"F 16, B 17, 152000 steps", BitsPerStep(phase1, 16)},
        {"F 16, DeepSpeed, resumed at step 152511 for 10000", ResumedBitsPerStep(16)}}) {
    claims.push_back(Factor("0/1 Adam, BERT-Large: volume up to 26x less than Adam", 26, inputs,
                            Reduction(bits, 16)));
  }
  return claims;
}

// An allreduce of n nodes moves 2(n-1)/n of the gradient through each node's link.
std::vector<Claim> EffectiveBandwidths() {
  struct Profile {
    int nodes;
    double allreduce_ms;
  };
  constexpr double kGradientBits = 336e6 * 16;
  std::vector<Claim> claims;
  for (const Profile& profile : {Profile{16, 2205.86}, {8, 2173.35}, {4, 2133.24}, {2, 1897.21}}) {
    const double bits = 2.0 * (profile.nodes - 1) / profile.nodes * kGradientBits;
    claims.push_back({.claim = "BERT-Large, Ethernet: 4.1 Gbit/s effective",
                      .inputs = fmt::format("336 M x 16 bits, {} nodes, allreduce {} ms",
                                            profile.nodes, profile.allreduce_ms),
                      .computed = bits / profile.allreduce_ms / 1e6,
                      .unit = Unit::kGigabits,
                      .remark = "4.1 is between 16 and 2 nodes"});
  }
  return claims;
}

}  // namespace

std::vector<Claim> ComputeClaims() {
  const StepCounts large = CountsOfPaper(kBertLarge.steps);
  const StepCounts phase1 = CountsOfPaper(kBertLargePhase1.steps);
  const StepCounts base = CountsOfPaper(kBertBase.steps);
  std::vector<Claim> claims;
  for (std::vector<Claim>& group :
       std::array{OneBitVolumes(), Speedups(), ZeroOneRounds(large, phase1, base),
                  ZeroOneVolumes(large, phase1, base), ZeroOneAgainstAdam(large, phase1),
                  EffectiveBandwidths()}) {
    claims.insert(claims.end(), group.begin(), group.end());
  }
  return claims;
}

}  // namespace onebit::schedule
