// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Random programs of NCCL through the interposer, beside the same calls of the linked API. The
// ranks of a program make the same calls, with buffers and at times of their own.
#include <gtest/gtest.h>
#include <onebit/onebit.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/preload/config_options.h"
#include "tests/preload/preloaded_program.h"
#include "tests/support/cuda/cuda_stand_in.h"

namespace onebit::testing {
namespace {

// ONEBIT_TEST_PROGRAMS runs more of them.
unsigned Programs() {
  const char* const wanted = std::getenv("ONEBIT_TEST_PROGRAMS");
  return wanted == nullptr ? 12 : static_cast<unsigned>(std::strtoul(wanted, nullptr, 10));
}

// A codec as a program gives it, and what it means.
struct Choice {
  const char* text;
  onebitCodec_t codec;
  onebitMode_t mode;
  int start;
};
constexpr Choice kChoices[] = {{"fp4,start=2", onebitCodecFp4, onebitModeEf, 2},
                               {"int8,plain,start=0", onebitCodecInt8, onebitModePlain, 0},
                               {"sign,start=1", onebitCodecSign, onebitModeEf, 1},
                               {"int2,start=0", onebitCodecInt2, onebitModeEf, 0},
                               {"bf16,start=0", onebitCodecBf16, onebitModeEf, 0}};

using Random = std::mt19937;

// A tensor of a program, which the program may replace by another one under the same number.
struct Numbered {
  size_t count = 0;
  const Choice* choice = nullptr;
  bool is_gather = false;
  int calls = 0;
  std::unique_ptr<onebitCompressor_s, onebitResult_t (*)(onebitCompressor_t)> compressor{
      nullptr, onebitCompressorDestroy};

  void Draw(Random& program) {
    *this = {};
    count = 500 + program() % 20'000;
    // The last two have half a share each: with other draws no seed would run out of memory.
    choice = &kChoices[program() % 4];
    if (choice == &kChoices[3] && count % 2 == 0) ++choice;
    is_gather = program() % 4 == 0;
    // Without residuals, so that the gathers of a group may be alike.
    if (is_gather) choice = &kChoices[1];
  }
};

// One call, with its result by the interposer and by the linked API.
struct Made {
  Made(const Rank& self, const Numbered& of, int number)
      : values(GradientOf(self.rank, number, of.count)),
        send(std::as_bytes(std::span<const float>(values))),
        recv((of.is_gather ? kRanks : 1) * of.count * sizeof(float)),
        expected((of.is_gather ? kRanks : 1) * of.count * sizeof(float)) {}

  const std::vector<float> values;
  const CudaBuffer send;
  const CudaBuffer recv;
  const CudaBuffer expected;
};

class ProgramOfRank {
 public:
  ProgramOfRank(Rank& self, unsigned seed, std::atomic<bool>& has_failed)
      : self_(self),
        program_(seed),
        own_(100 * seed + static_cast<unsigned>(self.rank)),
        has_failed_(has_failed) {
    EXPECT_EQ(ncclCommSplit(self.comm, 0, self.rank, &other_, nullptr), ncclSuccess);
    EXPECT_EQ(onebitCommInitFrom(&linked_, "nccl", &other_, sizeof other_, nullptr), onebitSuccess);
    tensors_.resize(1 + program_() % 5);
    for (Numbered& tensor : tensors_) tensor.Draw(program_);
    failing_step_ = program_() % 2 == 0 ? static_cast<int>(program_() % kSteps) : -1;
  }
  ProgramOfRank(const ProgramOfRank&) = delete;
  ProgramOfRank& operator=(const ProgramOfRank&) = delete;
  ~ProgramOfRank() {
    tensors_.clear();
    self_.stream.Synchronize();
    self_.everybody.arrive_and_wait();
    EXPECT_EQ(onebitCommDestroy(linked_), onebitSuccess);
    EXPECT_EQ(ncclCommDestroy(other_), ncclSuccess);
  }

  // Appends the results to `results`.
  void Run(std::vector<std::vector<float>>* results) {
    for (int step = 0; step < kSteps; ++step) {
      // Leaves tensors out, and replaces some.
      std::vector<int> used;
      for (int number = 0; number < static_cast<int>(tensors_.size()); ++number) {
        if (program_() % 8 == 0) tensors_[static_cast<size_t>(number)].Draw(program_);
        if (program_() % 4 != 0) used.push_back(number);
      }
      const bool is_grouped = program_() % 2 == 0;
      std::vector<std::unique_ptr<Made>> made;
      for (const int number : used) {
        made.push_back(
            std::make_unique<Made>(self_, tensors_[static_cast<size_t>(number)], number));
      }
      const unsigned allocations = program_() % 6;
      if (step == failing_step_) FailAfter(allocations);
      const bool is_made = MakeAll(used, made, is_grouped);
      if (step == failing_step_ && EndsInFailure(is_made)) return;
      ASSERT_TRUE(is_made) << step;
      MakeAllLinked(used, made, is_grouped);
      ExchangeMessages(step);
      for (const auto& each : made) {
        self_.stream.Synchronize();
        results->push_back(FloatsIn(each->recv));
        EXPECT_EQ(results->back(), FloatsIn(each->expected)) << step;
      }
    }
  }

 private:
  static constexpr int kSteps = 14;

  // Some messages from one rank to another, which put them into groups as they like.
  void ExchangeMessages(int step) {
    const int from = static_cast<int>(program_() % kRanks);
    const int to = (from + 1 + static_cast<int>(program_() % (kRanks - 1))) % kRanks;
    const size_t count = 1024 + program_() % 3 * 1000;  // one of three shapes
    const int messages = 1 + static_cast<int>(program_() % 4);
    if (self_.rank != from && self_.rank != to) return;
    const Numbered shape{.count = count};
    std::vector<std::unique_ptr<Made>> made;
    bool is_grouped = false;
    for (int i = 0; i < messages; ++i) {
      made.push_back(std::make_unique<Made>(self_, shape, 100 + i));
      if (!is_grouped && own_() % 2 == 0) {
        is_grouped = true;
        EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      }
      const Made& message = *made.back();
      const auto stream = self_.stream.get();
      EXPECT_EQ(self_.rank == from
                    ? ncclSend(message.send.data(), count, ncclFloat32, to, self_.comm, stream)
                    : ncclRecv(message.recv.data(), count, ncclFloat32, from, self_.comm, stream),
                ncclSuccess);
      if (is_grouped && own_() % 2 == 0) {
        is_grouped = false;
        EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
      }
    }
    if (is_grouped) {
      EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    }
    for (int i = 0; i < messages; ++i) {
      MakeLinkedMessage(from, to, count, 1000 + 10 * step + i, *made[static_cast<size_t>(i)]);
      if (self_.rank != to) continue;
      self_.stream.Synchronize();
      EXPECT_EQ(FloatsIn(made[static_cast<size_t>(i)]->recv),
                FloatsIn(made[static_cast<size_t>(i)]->expected))
          << step;
    }
  }

  void MakeLinkedMessage(int from, int to, size_t count, int64_t id, const Made& message) {
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.mode = onebitModePlain;
    config.codec = onebitCodecInt8;
    config.collective = onebitCollectiveSendRecv;
    config.memory = onebitMemoryDevice;
    config.tensorId = id;
    onebitCompressor_t compressor = nullptr;
    EXPECT_EQ(onebitCompressorCreate(&compressor, linked_, count, onebitFloat32, &config),
              onebitSuccess);
    const auto stream = self_.stream.get();
    EXPECT_EQ(self_.rank == from ? onebitSend(message.send.data(), count, onebitFloat32, to,
                                              compressor, linked_, stream)
                                 : onebitRecv(message.expected.data(), count, onebitFloat32, from,
                                              compressor, linked_, stream),
              onebitSuccess)
        << onebitGetLastError(linked_);
    onebitCompressorDestroy(compressor);
  }

  void FailAfter(unsigned allocations) {
    self_.stream.Synchronize();
    self_.everybody.arrive_and_wait();
    if (self_.rank == 0) {
      onebitTestCudaFail("cuMemAlloc_v2", allocations, 1, CUDA_ERROR_OUT_OF_MEMORY);
    }
    self_.everybody.arrive_and_wait();
  }

  // If the failure has hit any rank, all find an error and can abort.
  bool EndsInFailure(bool is_made) {
    if (!is_made) has_failed_ = true;
    self_.everybody.arrive_and_wait();
    if (self_.rank == 0) onebitTestCudaFail("cuMemAlloc_v2", 0, 0, CUDA_SUCCESS);
    self_.everybody.arrive_and_wait();
    if (!has_failed_) return false;
    EXPECT_NE(AwaitAsyncError(self_.comm), ncclSuccess);
    self_.everybody.arrive_and_wait();
    EXPECT_EQ(ncclCommAbort(std::exchange(self_.comm, nullptr)), ncclSuccess);
    return true;
  }

  // Returns false if a call has failed.
  bool MakeAll(const std::vector<int>& used, const std::vector<std::unique_ptr<Made>>& made,
               bool is_grouped) {
    bool is_made = true;
    if (is_grouped) is_made &= ncclGroupStart() == ncclSuccess;
    for (size_t i = 0; i < used.size(); ++i) {
      const Numbered& tensor = tensors_[static_cast<size_t>(used[i])];
      Options options;
      options.Tensor(static_cast<uint64_t>(used[i])).Codec(tensor.choice->text);
      is_made &= Make(tensor, *made[i], options.config()) == ncclSuccess;
      // Ranks come at different times.
      if (own_() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own_() % 500));
    }
    if (is_grouped) is_made &= ncclGroupEnd() == ncclSuccess;
    return is_made;
  }

  ncclResult_t Make(const Numbered& tensor, const Made& made, const ncclCollConfig_t& config) {
    const auto stream = self_.stream.get();
    if (tensor.is_gather) {
      return ncclAllGatherConfig(made.send.data(), made.recv.data(), tensor.count, ncclFloat32,
                                 self_.comm, stream, &config);
    }
    return ncclAllReduceConfig(made.send.data(), made.recv.data(), tensor.count, ncclFloat32,
                               ncclAvg, self_.comm, stream, &config);
  }

  // Exact calls are NCCL's, which computes in another order than this library's own.
  void MakeAllLinked(const std::vector<int>& used, const std::vector<std::unique_ptr<Made>>& made,
                     bool is_grouped) {
    std::vector<size_t> compressed;
    for (size_t i = 0; i < used.size(); ++i) {
      Numbered& tensor = tensors_[static_cast<size_t>(used[i])];
      if (tensor.calls++ < tensor.choice->start) {
        MakeExact(tensor, *made[i]);
      } else {
        compressed.push_back(i);
      }
    }
    if (is_grouped) {
      EXPECT_EQ(onebitGroupStart(), onebitSuccess);
    }
    for (const size_t i : compressed) MakeLinked(tensors_[static_cast<size_t>(used[i])], *made[i]);
    if (is_grouped) {
      EXPECT_EQ(onebitGroupEnd(), onebitSuccess) << onebitGetLastError(nullptr);
    }
  }

  void MakeExact(const Numbered& tensor, const Made& made) {
    EXPECT_EQ(ncclAllReduce(made.send.data(), made.expected.data(), tensor.count, ncclFloat32,
                            ncclAvg, other_, self_.stream.get()),
              ncclSuccess);
  }

  void MakeLinked(Numbered& tensor, const Made& made) {
    if (tensor.compressor == nullptr) {
      onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
      config.mode = tensor.choice->mode;
      config.codec = tensor.choice->codec;
      config.memory = onebitMemoryDevice;
      config.tensorId = next_id_++;  // ranks have made different numbers of messages
      if (tensor.is_gather) config.collective = onebitCollectiveAllGather;
      onebitCompressor_t created = nullptr;
      EXPECT_EQ(onebitCompressorCreate(&created, linked_, tensor.count, onebitFloat32, &config),
                onebitSuccess);
      tensor.compressor.reset(created);
    }
    const auto stream = self_.stream.get();
    const onebitResult_t result =
        tensor.is_gather
            ? onebitAllGather(made.send.data(), made.expected.data(), tensor.count, onebitFloat32,
                              tensor.compressor.get(), linked_, stream)
            : onebitAllReduce(made.send.data(), made.expected.data(), tensor.count, onebitFloat32,
                              onebitAvg, tensor.compressor.get(), linked_, stream);
    EXPECT_EQ(result, onebitSuccess) << onebitGetLastError(linked_);
  }

  Rank& self_;
  Random program_;  // the same on all ranks
  Random own_;
  std::atomic<bool>& has_failed_;
  ncclComm_t other_ = nullptr;
  onebitComm_t linked_ = nullptr;
  std::vector<Numbered> tensors_;
  int64_t next_id_ = 0;  // of compressors for collectives; messages have those from 1000 on
  int failing_step_ = -1;
};

TEST(PreloadedRandomTest, ProgramsHaveTheResultsOfTheLinkedApi) {
  int failures = 0;
  for (unsigned seed = 1; seed <= Programs(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::vector<std::vector<std::vector<float>>> results(kRanks);
    std::atomic<bool> has_failed = false;
    RunNamed("random", [&](Rank& self) {
      ProgramOfRank(self, seed, has_failed).Run(&results[static_cast<size_t>(self.rank)]);
    });
    failures += has_failed ? 1 : 0;
    EXPECT_EQ(results[0].size(), results[1].size());
    for (size_t i = 0; i < results[0].size(); ++i) {
      EXPECT_EQ(results[0][i], results[1][i]) << i;
      EXPECT_EQ(results[0][i], results[2][i]) << i;
    }
  }
  EXPECT_GT(failures, 0);  // of memory
}

// Without numbers the order of the calls tells tensors apart, and some steps break it.
TEST(PreloadedRandomTest, RanksAgreeAboutTensorsWithoutNumbers) {
  for (unsigned seed = 1; seed <= Programs(); ++seed) {
    std::vector<std::vector<std::vector<float>>> results(kRanks);
    RunNamed("dp", [&](Rank& self) {
      Random program(seed);  // the same on all ranks
      Random own(100 * seed + static_cast<unsigned>(self.rank));
      std::vector<std::vector<Tensor>> buffers;
      const int count = 1 + static_cast<int>(program() % 5);
      for (int number = 0; number < count; ++number) {
        const size_t elements = 500 + program() % 20'000;
        std::vector<Tensor>& of_tensor = buffers.emplace_back();
        of_tensor.reserve(3);
        for (int i = 0; i < 3; ++i) of_tensor.emplace_back(self, number, elements);
      }
      const bool is_grouped = program() % 2 == 0;
      for (int step = 0; step < 20; ++step) {
        const bool breaks = program() % 8 == 0;  // a step that leaves tensors out
        std::vector<const Tensor*> used;
        if (is_grouped) {
          EXPECT_EQ(ncclGroupStart(), ncclSuccess);
        }
        for (std::vector<Tensor>& of_tensor : buffers) {
          if (breaks && program() % 2 == 0) continue;
          Tensor& tensor = of_tensor[own() % of_tensor.size()];
          EXPECT_EQ(tensor.AllReduce(self), ncclSuccess);
          used.push_back(&tensor);
          // Ranks come at different times.
          if (own() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 500));
        }
        if (is_grouped) {
          EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
        }
        for (const Tensor* tensor : used) {
          EXPECT_LT(tensor->ErrorOfResult(self), 0.4);
          results[static_cast<size_t>(self.rank)].push_back(tensor->Result(self));
        }
      }
    });
    EXPECT_EQ(results[0], results[1]) << seed;
    EXPECT_EQ(results[0], results[2]) << seed;
  }
}

}  // namespace
}  // namespace onebit::testing
