// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Compares the plugin's view of NCCL's ABI with nccl.h.
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "plugins/nccl_preload/nccl_types.h"
#include "plugins/transport_nccl/nccl_api.h"

namespace onebit::nccl {
namespace {

// Types as C passes them: an enumeration is an int, a stream and a communicator are pointers.
template <typename Type>
using Passed = std::conditional_t<
    std::is_enum_v<Type>, int,
    std::conditional_t<std::is_same_v<Type, ncclUniqueId>, UniqueId,
                       std::conditional_t<std::is_same_v<Type, ncclUniqueId*>, UniqueId*,
                                          std::conditional_t<std::is_same_v<Type, ncclConfig_t*>,
                                                             Config*, Type>>>>;
template <typename Type>
using PassedThrough = std::conditional_t<
    std::is_same_v<Type, ncclResult_t*>, int*,
    std::conditional_t<std::is_same_v<Type, cudaStream_t>, onebitStream_t, Passed<Type>>>;

template <typename Function>
struct Signature;
template <typename Result, typename... Arguments>
struct Signature<Result (*)(Arguments...)> {
  using Type = PassedThrough<Result> (*)(PassedThrough<Arguments>...);
};

#define EXPECT_SAME_ABI(name)                                             \
  EXPECT_TRUE((std::is_same_v<Signature<decltype(&::nccl##name)>::Type,   \
                              Signature<decltype(NcclApi::name)>::Type>)) \
      << #name

TEST(NcclAbiTest, FunctionsAreThoseOfTheHeader) {
  static_assert(std::is_same_v<CommHandle, ncclComm_t>);
  static_assert(std::is_same_v<onebitStream_t, cudaStream_t>);
  EXPECT_SAME_ABI(GetVersion);
  EXPECT_SAME_ABI(GetUniqueId);
  EXPECT_SAME_ABI(CommInitRank);
  EXPECT_SAME_ABI(CommInitRankConfig);
  EXPECT_SAME_ABI(CommCount);
  EXPECT_SAME_ABI(CommUserRank);
  EXPECT_SAME_ABI(CommCuDevice);
  EXPECT_SAME_ABI(CommDestroy);
  EXPECT_SAME_ABI(CommAbort);
  EXPECT_SAME_ABI(CommFinalize);
  EXPECT_SAME_ABI(CommGetAsyncError);
  EXPECT_SAME_ABI(GetErrorString);
  EXPECT_SAME_ABI(GetLastError);
  EXPECT_SAME_ABI(GroupStart);
  EXPECT_SAME_ABI(GroupEnd);
  EXPECT_SAME_ABI(Send);
  EXPECT_SAME_ABI(Recv);
  EXPECT_SAME_ABI(AllReduce);
  EXPECT_SAME_ABI(Broadcast);
#if NCCL_VERSION_CODE >= 22807
  EXPECT_SAME_ABI(CommRevoke);
#endif
}

TEST(NcclAbiTest, NumbersAreThoseOfTheHeader) {
  EXPECT_EQ(kSuccess, ncclSuccess);
  EXPECT_EQ(kInProgress, ncclInProgress);
  EXPECT_EQ(kInt8, ncclInt8);
  EXPECT_EQ(onebitFloat16, static_cast<int>(ncclFloat16));
  EXPECT_EQ(onebitFloat32, static_cast<int>(ncclFloat32));
  EXPECT_EQ(onebitBfloat16, static_cast<int>(ncclBfloat16));
  EXPECT_EQ(onebitUint8, static_cast<int>(ncclUint8));
  EXPECT_EQ(onebitInt32, static_cast<int>(ncclInt32));
  EXPECT_EQ(onebitInt64, static_cast<int>(ncclInt64));
  EXPECT_EQ(onebitFloat64, static_cast<int>(ncclFloat64));
  EXPECT_EQ(onebitSum, static_cast<int>(ncclSum));
  EXPECT_EQ(onebitMax, static_cast<int>(ncclMax));
  EXPECT_EQ(onebitMin, static_cast<int>(ncclMin));
  EXPECT_EQ(onebitAvg, static_cast<int>(ncclAvg));
  for (const ncclResult_t result :
       {ncclSuccess, ncclUnhandledCudaError, ncclSystemError, ncclInternalError,
        ncclInvalidArgument, ncclInvalidUsage, ncclRemoteError, ncclInProgress}) {
    EXPECT_EQ(static_cast<int>(ResultOf(result)), static_cast<int>(result));
  }
}

TEST(NcclAbiTest, ConfigurationBeginsAsTheHeaders) {
  EXPECT_EQ(sizeof(UniqueId), sizeof(ncclUniqueId));
  EXPECT_EQ(offsetof(Config, size), offsetof(ncclConfig_t, size));
  EXPECT_EQ(offsetof(Config, magic), offsetof(ncclConfig_t, magic));
  EXPECT_EQ(offsetof(Config, version), offsetof(ncclConfig_t, version));
  EXPECT_EQ(offsetof(Config, blocking), offsetof(ncclConfig_t, blocking));
  EXPECT_EQ(offsetof(Config, unused), offsetof(ncclConfig_t, cgaClusterSize));
  const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(Config().magic, initial.magic);
  EXPECT_EQ(Config().unused, initial.cgaClusterSize);
}

#if NCCL_VERSION_CODE >= 23200
TEST(NcclAbiTest, ConfigurationsOfCallsAreThoseOfTheHeader) {
  using preload::CollConfig;
  using preload::ConfigOption;
  EXPECT_EQ(sizeof(CollConfig), sizeof(ncclCollConfig_t));
#define EXPECT_SAME_FIELD(own, theirs) \
  EXPECT_EQ(offsetof(CollConfig, own), offsetof(ncclCollConfig_t, theirs))
  EXPECT_SAME_FIELD(size, size);
  EXPECT_SAME_FIELD(magic, magic);
  EXPECT_SAME_FIELD(version, version);
  EXPECT_SAME_FIELD(options, ext);
  EXPECT_SAME_FIELD(min_ctas, minCTAs);
  EXPECT_SAME_FIELD(max_ctas, maxCTAs);
  EXPECT_SAME_FIELD(nvls_ctas, nvlsCTAs);
  EXPECT_SAME_FIELD(cga_cluster_size, cgaClusterSize);
  EXPECT_SAME_FIELD(algorithms, algSelection);
  EXPECT_SAME_FIELD(must_have_algorithm, forceAlgSelection);
  EXPECT_SAME_FIELD(cta_policy, CTAPolicy);
  EXPECT_SAME_FIELD(profiler_tag, userProfilerTag);
  EXPECT_SAME_FIELD(launch_completion_event, launchCompletionEvent);
  EXPECT_EQ(sizeof(ConfigOption), sizeof(ncclConfigExt_t));
  EXPECT_EQ(offsetof(ConfigOption, next), offsetof(ncclConfigExt_t, next));
  EXPECT_EQ(offsetof(ConfigOption, vendor), offsetof(ncclConfigExt_t, key.vendorId));
  EXPECT_EQ(offsetof(ConfigOption, id), offsetof(ncclConfigExt_t, key.optionId));
  EXPECT_EQ(offsetof(ConfigOption, value), offsetof(ncclConfigExt_t, val));
}
#endif

}  // namespace
}  // namespace onebit::nccl
