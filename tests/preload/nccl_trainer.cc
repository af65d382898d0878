// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// nccl_trainer ID_FILE MODE STEPS COUNTED_FROM [RANK_THAT_DIES STEP]: one rank of a training over
// NCCL. It knows nothing of onebit, and finds RANK and WORLD_SIZE in its environment.
//
// MODE dp: all ranks average their gradients. grouped: those of a step are a group of NCCL. dptp:
// the layers of two ranks each form one of twice the width, and the two ranks with the same part
// average their gradients.
//
// At the end each rank prints the loss on samples that no step has used, a hash of its parameters,
// the bytes it had sent before step COUNTED_FROM and in all, if the NCCL counts them, and its calls
// of NCCL's all-reduce. Status 3: the watchdog has ended the communicators.
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numbers>

#include "tests/preload/trainer_comm.h"
#include "tests/preload/trainer_model.h"

// The stand-in for NCCL has these in addition.
extern "C" {
uint64_t onebitTestNcclWireBytes(void) __attribute__((weak));
uint64_t onebitTestNcclAllReduces(void) __attribute__((weak));
}

namespace onebit::testing {
namespace {

constexpr size_t kSamples = 16;  // of a rank and step
constexpr size_t kTestSamples = 256;
constexpr float kRate = 0.003f;

struct Options {
  std::string id_file;
  bool has_tensor_parallel = false;
  bool has_groups = false;
  int steps = 0;
  int counted_from = 0;
  int rank_that_dies = -1;
  int step_of_death = -1;
};

Options OptionsOf(int argc, char** argv) {
  if (argc != 5 && argc != 7) throw std::runtime_error("see the head of nccl_trainer.cc");
  Options options{.id_file = argv[1],
                  .has_tensor_parallel = std::strcmp(argv[2], "dptp") == 0,
                  .has_groups = std::strcmp(argv[2], "grouped") == 0,
                  .steps = std::atoi(argv[3]),
                  .counted_from = std::atoi(argv[4])};
  if (argc == 7) {
    options.rank_that_dies = std::atoi(argv[5]);
    options.step_of_death = std::atoi(argv[6]);
  }
  return options;
}

int Number(const char* variable) {
  const char* const value = std::getenv(variable);
  if (value == nullptr) throw std::runtime_error(std::string(variable) + " is not set");
  return std::atoi(value);
}

uint64_t WireBytes() { return onebitTestNcclWireBytes == nullptr ? 0 : onebitTestNcclWireBytes(); }

uint64_t HashOf(Parameters& values) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (size_t tensor = 0; tensor < Parameters::kTensors; ++tensor) {
    for (const float value : values.tensor(tensor)) {
      uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      hash = (hash ^ bits) * 0x100000001b3;
    }
  }
  return hash;
}

// The groups of a rank. Without tensor parallelism only `data` has ranks.
struct Groups {
  ncclComm_t data;
  int data_rank;
  ncclComm_t tensor;
  int tensor_rank;
};

Groups GroupsOf(Trainer* trainer, bool has_tensor_parallel) {
  if (!has_tensor_parallel) return {trainer->world(), trainer->rank(), nullptr, 0};
  const int tensor_rank = trainer->rank() % 2;
  const int data_rank = trainer->rank() / 2;
  return {.data = trainer->Split(tensor_rank, data_rank, "dp"),
          .data_rank = data_rank,
          .tensor = trainer->Split(data_rank, tensor_rank, "tp"),
          .tensor_rank = tensor_rank};
}

class Training {
 public:
  Training(Trainer* trainer, const Options& options)
      : trainer_(*trainer),
        options_(options),
        groups_(GroupsOf(trainer, options.has_tensor_parallel)),
        model_(sizes_, static_cast<uint64_t>(100 + trainer->rank())) {
    // Ranks begin with equal parameters.
    for (size_t i = 0; i < Parameters::kTensors; ++i) {
      trainer_.Broadcast(groups_.data, &model_.values().tensor(i));
    }
  }

  void Run() {
    for (int step = 0; step < options_.steps; ++step) {
      if (step == options_.counted_from) bytes_before_ = WireBytes();
      if (step == options_.step_of_death && trainer_.rank() == options_.rank_that_dies) {
        trainer_.BeforeNextResult([] { std::raise(SIGKILL); });
      }
      Step(step);
    }
  }

  void Print() {
    const Batch batch(sizes_, kTestSamples, 1);
    const double loss = Model::Loss(OutputsFor(batch), batch);
    const uint64_t calls = onebitTestNcclAllReduces == nullptr ? 0 : onebitTestNcclAllReduces();
    std::printf("rank %d: loss %.9g, parameters %016llx, bytes %llu to %llu, all-reduces %llu\n",
                trainer_.rank(), loss, static_cast<unsigned long long>(HashOf(model_.values())),
                static_cast<unsigned long long>(bytes_before_),
                static_cast<unsigned long long>(WireBytes()),
                static_cast<unsigned long long>(calls));
    std::fflush(stdout);
  }

 private:
  void Step(int step) {
    const auto seed = static_cast<uint64_t>(1000 * (groups_.data_rank + 1) + step);
    const Batch batch(sizes_, kSamples, seed);
    const std::vector<float> outputs = OutputsFor(batch);
    Parameters& gradient = model_.Backward(batch, outputs);
    // The last layer comes first, as it does in a backward pass.
    trainer_.Average(groups_.data, {&gradient.second, &gradient.first, &gradient.biases});
    std::vector<float> loss = {static_cast<float>(Model::Loss(outputs, batch))};
    trainer_.Average(trainer_.world(), {&loss});
    const float done = static_cast<float>(step) / static_cast<float>(options_.steps);
    model_.Step(&gradient, kRate * (1 + std::cos(std::numbers::pi_v<float> * done)) / 2);
  }

  // The outputs of the whole model.
  std::vector<float> OutputsFor(const Batch& batch) {
    std::vector<float> outputs = model_.Forward(batch);
    if (groups_.tensor != nullptr) trainer_.Sum(groups_.tensor, &outputs);
    return outputs;
  }

  Trainer& trainer_;
  const Options options_;
  const Sizes sizes_;
  const Groups groups_;
  Model model_;
  uint64_t bytes_before_ = 0;
};

int RunTrainer(int argc, char** argv) {
  const Options options = OptionsOf(argc, argv);
  Trainer trainer(Number("RANK"), Number("WORLD_SIZE"), options.id_file);
  if (options.has_groups) trainer.UseGroups();
  try {
    Training training(&trainer, options);
    training.Run();
    training.Print();
  } catch (const Aborted&) {
    return 3;
  }
  return 0;
}

}  // namespace
}  // namespace onebit::testing

int main(int argc, char** argv) {
  try {
    return onebit::testing::RunTrainer(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nccl_trainer: %s\n", error.what());
    return 1;
  }
}
