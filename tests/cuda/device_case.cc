// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/device_case.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>

#include "onebit/onebit.hpp"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/device_ranks.h"
#include "tests/support/exported_state.h"
#include "tests/support/run_ranks.h"
#include "tests/support/tensor.h"

namespace onebit::testing {
namespace {

void Check(onebitResult_t result, const char* what) {
  if (result == onebitSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + onebitGetLastError(nullptr));
}

// Elements in the buffers of a call on each of `ranks` ranks.
struct Sizes {
  size_t send = 0;
  size_t receive = 0;
};

Sizes SizesOf(const DeviceCase& one, size_t ranks) {
  const size_t all = one.count * ranks;
  switch (one.collective) {
    case onebitCollectiveAllReduce:
      return {one.count, one.count};
    case onebitCollectiveReduceScatter:
      return {all, one.count};
    case onebitCollectiveAllGather:
      return {one.count, all};
    case onebitCollectiveAllToAll:
    case onebitCollectiveAllToAllv:
      return {all, all};
    case onebitCollectiveSendRecv:  // these have tests of their own
    case onebitCollectiveBroadcast:
      break;
  }
  return {};
}

// Counts and displacements of an all-to-all-v whose pairs differ: rank a sends rank b one.count *
// (a + b + 1) / (2 * ranks) elements.
struct Pairs {
  Pairs(const DeviceCase& one, size_t rank, size_t ranks) {
    size_t send = 0;
    size_t receive = 0;
    for (size_t peer = 0; peer < ranks; ++peer) {
      const size_t count = one.count * (rank + peer + 1) / (2 * ranks);
      counts.push_back(count);
      send_begins.push_back(send);
      receive_begins.push_back(receive);
      send += count;
      receive += count;
    }
  }
  std::vector<size_t> counts;  // symmetric, so it is both what is sent and what is received
  std::vector<size_t> send_begins;
  std::vector<size_t> receive_begins;
};

class CaseRun {
 public:
  CaseRun(const DeviceCase& one, onebitComm_t comm, Where where)
      : one_(one), comm_(comm), is_on_device_(where != Where::kHost), where_(where) {
    int rank = 0;
    int ranks = 0;
    Check(onebitCommUserRank(comm, &rank), "rank");
    Check(onebitCommCount(comm, &ranks), "count");
    rank_ = static_cast<size_t>(rank);
    ranks_ = static_cast<size_t>(ranks);
    onebitCommStats_t stats = {.size = sizeof stats};
    Check(onebitCommGetStats(comm, &stats), "stats");
    two_level_calls_before_ = stats.two_level_calls;
    sizes_ = SizesOf(one, ranks_);
    pairs_.emplace(one, rank_, ranks_);
    if (is_on_device_) stream_.emplace();
    if (!one.is_dense) MakeCompressor();
  }

  DeviceRecord Run() {
    DeviceRecord record;
    if (is_on_device_) {
      MakeBuffers();
      MeetOnTheHost();
    }
    std::unique_ptr<CudaGraph> graph;
    for (int call = 0; call < one_.calls; ++call) {
      const Tensor input = InputOf(call);
      if (!is_on_device_) {
        record.outputs.push_back(CallOnHost(input));
        continue;
      }
      WriteInput(input);
      if (where_ == Where::kGraph && call == 1) {
        CudaGraph::Begin(*stream_);
        CallOnDevice();
        graph = std::make_unique<CudaGraph>(*stream_);
      }
      if (graph != nullptr) {
        graph->Launch(*stream_);
      } else {
        CallOnDevice();
      }
      stream_->Synchronize();
      onebitResult_t error = onebitSuccess;
      Check(onebitCommGetAsyncError(comm_, &error), "error of the communicator");
      if (error != onebitSuccess) throw std::runtime_error(onebitGetLastError(comm_));
      record.outputs.push_back(ReadOutput());
    }
    Look(&record);
    if (is_on_device_) {  // nobody frees memory before all are done (memory.h)
      Check(onebitBarrier(comm_, stream_->handle()), "onebitBarrier");
      stream_->Synchronize();
    }
    return record;
  }

 private:
  size_t element_bytes() const { return kernels::BytesOf(KernelType(one_.type)); }

  void MakeCompressor() {
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.collective = one_.collective;
    config.mode = one_.mode;
    config.codec = one_.codec;
    if (one_.codec == onebitCodecSign) config.scaleRule = one_.rule;
    config.block = one_.block;
    if (one_.mode == onebitModeEf && one_.collective != onebitCollectiveAllGather) {
      config.residualType = one_.residual;
    }
    config.transactional = one_.is_transactional ? 1 : 0;
    config.levels = one_.levels;
    config.tensorId = 1;  // draws depend on it
    if (is_on_device_) config.memory = onebitMemoryDevice;
    const size_t elements =
        one_.collective == onebitCollectiveAllReduce ? one_.count : one_.count * ranks_;
    std::vector<uint8_t> mask(elements / 8 + 1);
    for (size_t i = 0; i < elements; ++i) {
      if (i % 5 != 2) mask[i / 8] |= static_cast<uint8_t>(1u << (i % 8));
    }
    if (one_.has_mask) config.mask = mask.data();
    const size_t count = one_.collective == onebitCollectiveAllToAllv ? 0 : one_.count;
    onebitCompressor_t compressor = nullptr;
    Check(onebitCompressorCreate(&compressor, comm_, count, one_.type, &config), "compressor");
    compressor_.reset(compressor);
  }

  // A rank must not allocate while the streams of others wait for it (memory.h).
  void MeetOnTheHost() const {
    float one = 1;
    Check(onebitAllReduce(&one, &one, 1, onebitFloat32, onebitSum, nullptr, comm_, nullptr),
          "allreduce in host memory");
  }

  // The same input whatever the memory.
  Tensor InputOf(int call) const {
    Tensor input(sizes_.send, KernelType(one_.type));
    std::mt19937 random(static_cast<unsigned>(1000 * call) + static_cast<unsigned>(rank_));
    input.FillRandom(random);
    if (call == one_.nonfinite_call && rank_ + 1 == ranks_ && sizes_.send != 0) {
      input.Set(sizes_.send / 2, std::numeric_limits<float>::quiet_NaN());
    }
    return input;
  }

  // In place the smaller buffer is this rank's part of the larger one.
  size_t SendOffset() const {
    return one_.is_in_place && sizes_.send < sizes_.receive ? rank_ * sizes_.send : 0;
  }
  size_t ReceiveOffset() const {
    return one_.is_in_place && sizes_.receive < sizes_.send ? rank_ * sizes_.receive : 0;
  }

  // Makes NaNs equal that differ in bits without meaning: plain low-bit calls compute them.
  void UnifyNans(std::vector<std::byte>* output) const {
    if (one_.is_dense || one_.codec == onebitCodecSign || one_.mode != onebitModePlain) return;
    const uint32_t infinity = one_.type == onebitFloat32   ? 0x7F800000u
                              : one_.type == onebitFloat16 ? 0x7C00u
                                                           : 0x7F80u;
    const uint32_t magnitude_bits = one_.type == onebitFloat32 ? 0x7FFFFFFFu : 0x7FFFu;
    for (size_t at = 0; at < output->size(); at += element_bytes()) {
      uint32_t bits = 0;
      std::memcpy(&bits, &(*output)[at], element_bytes());
      if ((bits & magnitude_bits) > infinity) bits = magnitude_bits;
      std::memcpy(&(*output)[at], &bits, element_bytes());
    }
  }

  std::vector<std::byte> CallOnHost(const Tensor& input) {
    Tensor send(one_.is_in_place ? std::max(sizes_.send, sizes_.receive) : sizes_.send,
                KernelType(one_.type), one_.shift_elements);
    Tensor receive(one_.is_in_place ? 0 : sizes_.receive, KernelType(one_.type),
                   one_.shift_elements);
    std::byte* const from = send.data() + SendOffset() * element_bytes();
    std::copy_n(input.data(), input.bytes(), from);
    std::byte* const to =
        one_.is_in_place ? send.data() + ReceiveOffset() * element_bytes() : receive.data();
    Call(from, to, nullptr);
    std::vector<std::byte> output(to, to + sizes_.receive * element_bytes());
    UnifyNans(&output);
    return output;
  }

  void MakeBuffers() {
    const size_t shift = one_.shift_elements * element_bytes();
    const size_t all = std::max(sizes_.send, sizes_.receive) * element_bytes();
    const std::vector<std::byte> zeros(all);
    send_.emplace(zeros, shift);
    if (!one_.is_in_place) receive_.emplace(zeros, shift);
  }

  std::byte* from() const {
    return static_cast<std::byte*>(send_->data()) + SendOffset() * element_bytes();
  }
  std::byte* to() const {
    return one_.is_in_place
               ? static_cast<std::byte*>(send_->data()) + ReceiveOffset() * element_bytes()
               : static_cast<std::byte*>(receive_->data());
  }

  void WriteInput(const Tensor& input) const {
    if (input.bytes() == 0) return;
    // Stream-ordered: does not wait for work outside of the stream.
    CheckCuda(cuMemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(from()), input.data(), input.bytes(),
                                stream_->get()),
              "cuMemcpyHtoDAsync");
    stream_->Synchronize();
  }
  std::vector<std::byte> ReadOutput() const {
    std::vector<std::byte> output(sizes_.receive * element_bytes());
    if (output.empty()) return output;
    CheckCuda(cuMemcpyDtoH(output.data(), reinterpret_cast<CUdeviceptr>(to()), output.size()),
              "cuMemcpyDtoH");
    UnifyNans(&output);
    return output;
  }

  void CallOnDevice() { Call(from(), to(), stream_->handle()); }

  void Call(const void* from, void* to, onebitStream_t stream) {
    const onebitCompressor_t compressor = compressor_.get();
    switch (one_.collective) {
      case onebitCollectiveAllReduce:
        return Check(
            onebitAllReduce(from, to, one_.count, one_.type, one_.op, compressor, comm_, stream),
            "allreduce");
      case onebitCollectiveReduceScatter:
        return Check(onebitReduceScatter(from, to, one_.count, one_.type, one_.op, compressor,
                                         comm_, stream),
                     "reduce-scatter");
      case onebitCollectiveAllGather:
        return Check(onebitAllGather(from, to, one_.count, one_.type, compressor, comm_, stream),
                     "all-gather");
      case onebitCollectiveAllToAll:
        return Check(onebitAllToAll(from, to, one_.count, one_.type, compressor, comm_, stream),
                     "all-to-all");
      case onebitCollectiveAllToAllv:
        return Check(onebitAllToAllv(from, pairs_->counts.data(), pairs_->send_begins.data(), to,
                                     pairs_->counts.data(), pairs_->receive_begins.data(),
                                     one_.type, compressor, comm_, stream),
                     "all-to-all-v");
      case onebitCollectiveSendRecv:
      case onebitCollectiveBroadcast:
        break;
    }
  }

  void Look(DeviceRecord* record) const {
    onebitCommStats_t comm_stats = {.size = sizeof comm_stats};
    Check(onebitCommGetStats(comm_, &comm_stats), "stats");
    record->wire_bytes = comm_stats.bytes_sent;
    if (one_.host_ranks != 0 && comm_stats.two_level_calls == two_level_calls_before_) {
      throw std::runtime_error("the calls have one level");
    }
    if (compressor_ == nullptr) return;
    onebitCompressorStats_t stats = {.size = sizeof stats};
    Check(onebitCompressorGetStats(compressor_.get(), &stats), "stats of the compressor");
    record->epoch = stats.epoch;
    record->nonfinite_calls = stats.nonfinite_calls;
    if (one_.mode == onebitModePlain) record->nonfinite_blocks = stats.nonfinite_blocks;
    record->state = StateOf(compressor_.get());
  }

  const DeviceCase& one_;
  const onebitComm_t comm_;
  const bool is_on_device_;
  const Where where_;
  size_t rank_ = 0;
  size_t ranks_ = 1;
  uint64_t two_level_calls_before_ = 0;
  Sizes sizes_;
  std::optional<Pairs> pairs_;
  UniqueCompressor compressor_;
  std::optional<CudaStream> stream_;
  std::optional<CudaBuffer> send_;
  std::optional<CudaBuffer> receive_;
};

}  // namespace

std::string Describe(const DeviceCase& one) {
  static const char* const kCollectives[] = {"allreduce", "reduce_scatter", "all_gather",
                                             "all_to_all", "all_to_all_v"};
  std::string text = kCollectives[one.collective];
  text += one.is_dense ? " dense" : one.mode == onebitModeEf ? " ef" : " plain";
  if (one.codec != onebitCodecSign) text += " codec " + std::to_string(one.codec);
  text += " type " + std::to_string(one.type) + " op " + std::to_string(one.op);
  text += one.rule == onebitScaleL2 ? " l2" : " l1";
  text += " block " + std::to_string(one.block) + " residual " + std::to_string(one.residual);
  text += " count " + std::to_string(one.count) + " shift " + std::to_string(one.shift_elements);
  if (!one.is_transactional) text += " not transactional";
  if (one.has_mask) text += " masked";
  if (one.is_in_place) text += " in place";
  if (one.host_ranks != 0) text += " hosts of " + std::to_string(one.host_ranks);
  if (one.levels != 0) text += " levels " + std::to_string(one.levels);
  if (one.nonfinite_call >= 0) text += " with NaN in call " + std::to_string(one.nonfinite_call);
  return text;
}

std::string DifferenceOf(const DeviceRecord& found, const DeviceRecord& expected) {
  std::string text;
  const auto add = [&](const std::string& what) { text += (text.empty() ? "" : ", ") + what; };
  if (found.outputs.size() != expected.outputs.size()) add("number of calls");
  for (size_t i = 0; i < std::min(found.outputs.size(), expected.outputs.size()); ++i) {
    if (found.outputs[i] != expected.outputs[i]) add("output of call " + std::to_string(i));
  }
  if (found.state != expected.state) add("state");
  const auto compare = [&](const char* what, uint64_t here, uint64_t there) {
    if (here == there) return;
    add(std::string(what) + " " + std::to_string(here) + " and not " + std::to_string(there));
  };
  compare("epoch", found.epoch, expected.epoch);
  compare("nonfinite_calls", found.nonfinite_calls, expected.nonfinite_calls);
  compare("nonfinite_blocks", found.nonfinite_blocks, expected.nonfinite_blocks);
  return text;
}

DeviceRecord RunCase(const DeviceCase& one, onebitComm_t comm, Where where) {
  return CaseRun(one, comm, where).Run();
}

std::vector<DeviceRecord> RunCaseOnHost(const DeviceCase& one, int ranks) {
  std::vector<DeviceRecord> records(static_cast<size_t>(ranks));
  const auto run = [&](onebitComm_t comm, int rank) {
    records[static_cast<size_t>(rank)] = RunCase(one, comm, Where::kHost);
  };
  if (one.host_ranks == 0) {
    RunRanks(ranks, run);
  } else {
    RunDeviceRanks(Over::kLocal, ranks, run, one.host_ranks);
  }
  return records;
}

}  // namespace onebit::testing
