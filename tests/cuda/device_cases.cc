// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/device_cases.h"

#include "tests/support/dense_types.h"
#include "tests/support/tensor.h"

namespace onebit::testing {
namespace {

using Cases = std::vector<DeviceCase>;

constexpr onebitDataType_t kTypes[] = {onebitFloat32, onebitFloat16, onebitBfloat16};
constexpr onebitCollective_t kChunked[] = {onebitCollectiveAllReduce, onebitCollectiveReduceScatter,
                                           onebitCollectiveAllGather, onebitCollectiveAllToAll};
constexpr onebitCollective_t kCollectives[] = {
    onebitCollectiveAllReduce, onebitCollectiveReduceScatter, onebitCollectiveAllGather,
    onebitCollectiveAllToAll, onebitCollectiveAllToAllv};

struct Codec {
  onebitCodec_t codec;
  int32_t row;  // a block for an all-to-all-v
};
constexpr Codec kCodesCodecs[] = {
    {onebitCodecFp4, 10},  {onebitCodecInt8, 7},           {onebitCodecUint8mm, 33},
    {onebitCodecInt2, 36}, {onebitCodecInt8Stochastic, 5}, {onebitCodecBf16, ONEBIT_UNDEF_INT}};

// Calls add(case) with each codec and each mode that it has in this collective.
template <typename Add>
void ForEachLowBit(onebitCollective_t collective, const Add& add) {
  for (const Codec& codec : kCodesCodecs) {
    const bool is_all_to_all_v = collective == onebitCollectiveAllToAllv;
    for (const onebitMode_t mode : {onebitModePlain, onebitModeEf}) {
      const bool has_feedback = codec.codec != onebitCodecInt8Stochastic && !is_all_to_all_v;
      if (mode == onebitModeEf && !has_feedback) continue;
      add(DeviceCase{.collective = collective,
                     .mode = mode,
                     .codec = codec.codec,
                     .block = is_all_to_all_v || codec.row < 0 ? codec.row : 96});
    }
  }
}

// Dense calls that take two levels on these hosts.
void AddDenseLevels(int host_ranks, Cases* cases) {
  struct Sum {
    onebitDataType_t type;
    onebitRedOp_t op;
  };
  constexpr Sum kSums[] = {{onebitFloat32, onebitAvg}, {onebitFloat32, onebitSum},
                           {onebitFloat16, onebitAvg}, {onebitBfloat16, onebitSum},
                           {onebitFloat64, onebitAvg}, {onebitInt32, onebitAvg},
                           {onebitUint8, onebitMax}};
  for (const onebitCollective_t collective :
       {onebitCollectiveAllReduce, onebitCollectiveReduceScatter, onebitCollectiveAllGather}) {
    for (const Sum& sum : kSums) {
      if (collective == onebitCollectiveAllGather && sum.op != onebitSum) continue;
      cases->push_back({.collective = collective,
                        .is_dense = true,
                        .type = sum.type,
                        .op = sum.op,
                        .count = 70'001,
                        .calls = 2,
                        .host_ranks = host_ranks});
    }
  }
}

}  // namespace

Cases CasesOfEveryCollective() {
  Cases cases;
  for (const onebitCollective_t collective : kCollectives) {
    for (const onebitMode_t mode : {onebitModeEf, onebitModePlain}) {
      if (mode == onebitModeEf && collective == onebitCollectiveAllToAllv) continue;
      cases.push_back({.collective = collective, .mode = mode, .count = 5000});
    }
    cases.push_back({.collective = collective, .is_dense = true, .count = 5000});
  }
  return cases;
}

Cases CasesOfElementTypes() {
  Cases cases;
  for (const onebitDataType_t type : kTypes) {
    for (const onebitCollective_t collective : kCollectives) {
      const onebitMode_t mode =
          collective == onebitCollectiveAllToAllv ? onebitModePlain : onebitModeEf;
      cases.push_back(
          {.collective = collective, .mode = mode, .type = type, .op = onebitSum, .count = 700});
      cases.push_back({.collective = collective, .is_dense = true, .type = type, .count = 700});
    }
  }
  return cases;
}

Cases CasesOfDenseTypes() {
  Cases cases;
  for (const kernels::DataType type : kernels::kDenseTypes) {
    for (const kernels::DenseOp op : kernels::kDenseOps) {
      for (const onebitCollective_t collective :
           {onebitCollectiveAllReduce, onebitCollectiveReduceScatter}) {
        cases.push_back({.collective = collective,
                         .is_dense = true,
                         .type = ApiType(type),
                         .op = ApiOp(op),
                         .count = 1003,
                         .shift_elements = 1,
                         .calls = 1});
      }
    }
    for (const onebitCollective_t collective :
         {onebitCollectiveAllGather, onebitCollectiveAllToAll, onebitCollectiveAllToAllv}) {
      cases.push_back({.collective = collective,
                       .is_dense = true,
                       .type = ApiType(type),
                       .count = 1003,
                       .calls = 1});
    }
  }
  return cases;
}

Cases CasesOfScales() {
  Cases cases;
  for (const int32_t block : {ONEBIT_BLOCK_TENSOR, 64, 192, 4096, 8192}) {
    for (const onebitScaleRule_t rule : {onebitScaleL2, onebitScaleL1}) {
      cases.push_back({.rule = rule, .block = block, .count = 40'000});
      cases.push_back({.collective = onebitCollectiveReduceScatter,
                       .rule = rule,
                       .block = block,
                       .count = 10'000});
    }
  }
  return cases;
}

Cases CasesOfOneExchange() {
  Cases cases;
  for (const int32_t block : {ONEBIT_BLOCK_TENSOR, 64, 4096}) {
    cases.push_back({.block = block, .count = 1000});  // so small that it takes one
  }
  return cases;
}

Cases CasesOfMasksAndResidualTypes() {
  Cases cases;
  for (const onebitCollective_t collective : kChunked) {
    cases.push_back({.collective = collective, .has_mask = true, .count = 1003});
  }
  cases.push_back({.residual = onebitBfloat16, .count = 20'001});
  cases.push_back(
      {.residual = onebitBfloat16, .is_transactional = false, .has_mask = true, .count = 20'001});
  return cases;
}

Cases CasesOfCountsAndAlignments() {
  Cases cases;
  for (const size_t count : {0, 1, 7, 8, 63, 65, 511, 4097}) {
    cases.push_back({.count = count, .shift_elements = count % 4});
    cases.push_back({.is_dense = true, .count = count, .shift_elements = count % 4});
  }
  return cases;
}

Cases CasesInPlace() {
  Cases cases;
  for (const onebitCollective_t collective :
       {onebitCollectiveAllReduce, onebitCollectiveReduceScatter, onebitCollectiveAllGather}) {
    cases.push_back({.collective = collective, .count = 3001, .is_in_place = true});
    cases.push_back(
        {.collective = collective, .is_dense = true, .count = 3001, .is_in_place = true});
  }
  return cases;
}

Cases CasesOfNonfiniteValues() {
  Cases cases;
  for (const onebitCollective_t collective : kChunked) {
    for (const bool is_transactional : {true, false}) {
      cases.push_back({.collective = collective,
                       .is_transactional = is_transactional,
                       .count = 5000,
                       .calls = 4,
                       .nonfinite_call = 1});
    }
  }
  return cases;
}

Cases CasesOfLowBitCodecs() {
  Cases cases;
  for (const onebitCollective_t collective : kCollectives) {
    ForEachLowBit(collective, [&](DeviceCase one) {
      one.type = kTypes[cases.size() % 3];
      one.op = cases.size() % 2 == 0 ? onebitAvg : onebitSum;
      one.count = collective == onebitCollectiveAllReduce ? 20'001 : 3001;  // two exchanges
      cases.push_back(one);
    });
  }
  return cases;
}

Cases CasesOfLowBitOptions() {
  Cases cases;
  ForEachLowBit(onebitCollectiveAllReduce, [&](DeviceCase one) {
    one.count = 1003;  // so small that it takes one exchange
    one.has_mask = cases.size() % 2 == 0;
    cases.push_back(one);
    one.is_transactional = false;
    one.residual = onebitBfloat16;
    if (one.block > 0) one.block = 8192;
    one.count = 40'000;
    one.shift_elements = 1;
    cases.push_back(one);
  });
  for (const onebitCollective_t collective : kChunked) {
    cases.push_back({.collective = collective,
                     .codec = onebitCodecFp4,
                     .block = 128,
                     .has_mask = true,
                     .count = 1003});
    if (collective == onebitCollectiveAllToAll) continue;
    cases.push_back({.collective = collective,
                     .codec = onebitCodecInt2,
                     .block = 32,
                     .count = 3001,
                     .is_in_place = true});
  }
  for (const size_t count : {0, 1, 7, 8, 65, 511}) {
    cases.push_back({.codec = onebitCodecUint8mm, .block = 32, .count = count});
  }
  return cases;
}

Cases CasesOfLowBitNonfiniteValues() {
  Cases cases;
  for (const onebitCollective_t collective : kCollectives) {
    ForEachLowBit(collective, [&](DeviceCase one) {
      one.is_transactional = cases.size() % 2 == 0;
      one.count = 5000;
      one.calls = 4;
      one.nonfinite_call = 1;
      cases.push_back(one);
    });
  }
  return cases;
}

Cases CasesOfOtherHosts() {
  Cases cases;
  for (const int host_ranks : {2, 3, 4}) {
    AddDenseLevels(host_ranks, &cases);
    const DeviceCase one = {.block = 192, .count = 10'001, .host_ranks = host_ranks, .levels = 2};
    for (const onebitCodec_t codec : {onebitCodecSign, onebitCodecFp4}) {
      DeviceCase has_nan = one, has_mask = one;
      has_nan.codec = has_mask.codec = codec;
      has_nan.calls = 4;
      has_nan.nonfinite_call = 1;
      has_mask.has_mask = has_mask.is_in_place = true;
      has_mask.type = onebitFloat16;
      has_mask.residual = onebitBfloat16;
      cases.insert(cases.end(), {has_nan, has_mask});
      has_mask.mode = onebitModePlain;
      cases.push_back(has_mask);
    }
    for (const onebitCollective_t collective :
         {onebitCollectiveAllReduce, onebitCollectiveReduceScatter, onebitCollectiveAllGather}) {
      for (const onebitCodec_t codec : {onebitCodecSign, onebitCodecUint8mm, onebitCodecBf16}) {
        for (const onebitRedOp_t op : {onebitAvg, onebitSum}) {
          if (op == onebitSum && collective == onebitCollectiveAllGather) continue;
          cases.push_back({.collective = collective,
                           .codec = codec,
                           .op = op,
                           .block = codec == onebitCodecBf16 ? ONEBIT_UNDEF_INT : 192,
                           .count = 10'001,
                           .host_ranks = host_ranks,
                           .levels = 2});
        }
      }
    }
  }
  return cases;
}

Cases CasesOfTwoLevels() {
  Cases cases;
  const auto add = [&](DeviceCase one) {
    one.host_ranks = 2;
    one.levels = 2;
    cases.push_back(one);
  };
  for (const onebitRedOp_t op : {onebitAvg, onebitSum}) {
    for (const onebitMode_t mode : {onebitModeEf, onebitModePlain}) {
      for (const onebitDataType_t type : kTypes) {
        add({.mode = mode, .type = type, .op = op, .block = 192, .count = 20'001});
      }
    }
    ForEachLowBit(onebitCollectiveAllReduce, [&](DeviceCase one) {
      one.type = kTypes[cases.size() % 3];
      one.op = op;
      one.count = 20'001;
      one.is_in_place = cases.size() % 2 == 0;
      add(one);
    });
  }
  for (const onebitCollective_t collective :
       {onebitCollectiveReduceScatter, onebitCollectiveAllGather}) {
    for (const onebitRedOp_t op : {onebitAvg, onebitSum}) {
      for (const onebitMode_t mode : {onebitModeEf, onebitModePlain}) {
        add({.collective = collective, .mode = mode, .op = op, .block = 192, .count = 3001});
      }
    }
    add({.collective = collective, .has_mask = true, .count = 1003, .is_in_place = true});
    add({.collective = collective, .count = 3001, .calls = 4, .nonfinite_call = 1});
    ForEachLowBit(collective, [&](DeviceCase one) {
      one.type = kTypes[cases.size() % 3];
      one.op = cases.size() % 2 == 0 ? onebitAvg : onebitSum;
      one.count = 3001;
      add(one);
    });
  }
  AddDenseLevels(2, &cases);
  add({.residual = onebitBfloat16, .has_mask = true, .count = 20'001, .is_in_place = true});
  add({.codec = onebitCodecInt8, .block = 96, .has_mask = true, .count = 20'001});
  for (const size_t count : {8193, 8200, 65'536})
    add({.count = count, .shift_elements = count % 4});
  for (const onebitCodec_t codec : {onebitCodecSign, onebitCodecFp4}) {
    for (const bool is_transactional : {true, false}) {
      add({.codec = codec,
           .block = 128,
           .is_transactional = is_transactional,
           .count = 20'001,
           .calls = 4,
           .nonfinite_call = 1});
    }
  }
  return cases;
}

}  // namespace onebit::testing
