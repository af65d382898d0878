// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compressor/compressor.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/bits.h"
#include "base/log.h"

namespace onebit {

Result<Compressor> Compressor::Create(const Config& config) {
  Compressor compressor;
  compressor.config_ = config;
  if (config.is_stream_ordered) {
    ONEBIT_ASSIGN_OR_RETURN(
        compressor.words_,
        compressor.NewMemory(sizeof(kernels::cuda::CompressorWords), "a compressor's counters"));
  }
  if (!config.codec.has_feedback()) return compressor;
  ONEBIT_ASSIGN_OR_RETURN(WorkerResidual worker, compressor.NewWorkerResidual(
                                                     config.worker_begin, compressor.worker_count(),
                                                     config.has_two_levels));
  compressor.ReplaceWorker(std::move(worker));
  ONEBIT_ASSIGN_OR_RETURN(ServerResidual server,
                          compressor.NewServerResidual(config.server_elements));
  compressor.ReplaceServer(std::move(server));
  return compressor;
}

Status Compressor::SetMask(const uint8_t* mask) {
  former_.reserve(former_.size() + 1);  // for LeaveMask
  if (mask == nullptr) {
    LeaveMask();
    mask_digest_ = 0;
    return OkStatus();
  }
  std::vector<uint8_t> packed(mask, mask + kernels::BitBytes(config_.elements()));
  if (const size_t used = config_.elements() % 8; used != 0) {
    packed.back() &= static_cast<uint8_t>((1u << used) - 1);
  }
  const uint32_t digest = ContentDigest(std::as_bytes(std::span(packed)));
  packed = Aligned(std::move(packed));
  ONEBIT_ASSIGN_OR_RETURN(const bool has_it, HasMask(packed, digest));
  if (has_it) return OkStatus();
  // Never empty, so that a null pointer always means "no mask".
  ONEBIT_ASSIGN_OR_RETURN(Memory memory, NewMemory(std::max<size_t>(packed.size(), 1), "a mask"));
  if (config_.location.is_device()) {
    ONEBIT_TRY(CopyNow(*config_.devices, config_.location.device, memory.data(), packed.data(),
                       packed.size()));
  } else if (!packed.empty()) {
    std::memcpy(memory.data(), packed.data(), packed.size());
  }
  LeaveMask();
  mask_ = std::move(memory);
  mask_digest_ = digest;
  return OkStatus();
}

// Setting an equal mask again, as 0/1 Adam does, takes no further memory.
Result<bool> Compressor::HasMask(const std::vector<uint8_t>& aligned, uint32_t digest) const {
  if (digest != mask_digest_) return false;
  Memory copy;
  if (config_.location.is_device()) {
    ONEBIT_ASSIGN_OR_RETURN(copy, mask_.CopyTo({}, config_.devices, "a mask"));
  }
  const std::byte* const mask = config_.location.is_device() ? copy.data() : mask_.data();
  return std::equal(aligned.begin(), aligned.end(), reinterpret_cast<const uint8_t*>(mask));
}

void Compressor::LeaveMask() {
  if (config_.location.is_device() && mask_.size() != 0) former_.push_back(std::move(mask_));
  mask_ = Memory();
}

Status Compressor::MoveTo(const MemoryLocation& location) {
  if (location == config_.location) return OkStatus();
  if (config_.location.is_device()) ONEBIT_TRY(Refresh());
  Memory* const all[] = {&worker_[0], &worker_[1], &server_[0], &server_[1], &mask_};
  constexpr size_t kCount = std::size(all);
  former_.reserve(former_.size() + kCount);
  Memory moved[kCount];
  const auto fits = [&](size_t i) {
    return location.is_device() && home_[i].size() == all[i]->size();
  };
  for (size_t i = 0; i < kCount; ++i) {
    if (fits(i)) {
      ONEBIT_TRY(CopyNow(*config_.devices, location.device, home_[i].data(), all[i]->data(),
                         all[i]->size()));
    } else {  // its size has changed, or there is no memory from before
      ONEBIT_ASSIGN_OR_RETURN(moved[i], all[i]->CopyTo(location, config_.devices, "a residual"));
    }
  }
  for (size_t i = 0; i < kCount; ++i) {
    const bool is_home = fits(i);
    if (!is_home && home_[i].size() != 0) former_.push_back(std::move(home_[i]));
    Memory next = is_home ? std::move(home_[i]) : std::move(moved[i]);
    home_[i] = location.is_device() ? Memory() : std::move(*all[i]);
    *all[i] = std::move(next);
  }
  config_.location = location;
  return location.is_device() ? Publish() : OkStatus();
}

Status Compressor::Refresh() {
  if (words_.size() == 0) return OkStatus();
  kernels::cuda::CompressorWords words;
  ONEBIT_TRY(
      CopyNow(*config_.devices, words_.location().device, &words, words_.data(), sizeof(words)));
  generation_ = static_cast<int>(words.current & 1u);
  has_previous_ = (words.current & kernels::cuda::kHasPrevious) != 0;
  if (words.has_failed != 0) has_failed_call_ = true;
  if (words.epoch != epoch_) lacks_results_ = false;
  epoch_ = words.epoch;
  age_ = words.age;
  nonfinite_calls_ = words.nonfinite_calls;
  residual_resets_ = words.residual_resets;
  nonfinite_blocks_ = words.nonfinite_blocks;
  return OkStatus();
}

Status Compressor::Publish() {
  if (words_.size() == 0) return OkStatus();
  const uint32_t has_previous = has_previous_ ? kernels::cuda::kHasPrevious : 0;
  const kernels::cuda::CompressorWords words = {
      .current = static_cast<uint32_t>(generation_) | has_previous,
      .has_failed = has_failed_call_ ? 1u : 0u,
      .epoch = epoch_,
      .age = age_,
      .nonfinite_calls = nonfinite_calls_,
      .residual_resets = residual_resets_,
      .nonfinite_blocks = nonfinite_blocks_};
  return CopyNow(*config_.devices, words_.location().device, words_.data(), &words, sizeof(words));
}

std::array<std::span<std::byte>, 2> Compressor::ResidualsToReset() const {
  if (config_.is_transactional) return {};
  return {std::span(worker_[0].data(), worker_[0].size()),
          std::span(server_[0].data(), server_[0].size())};
}

Compressor::KernelResidual Compressor::ResidualOf(const Memory (&generations)[2],
                                                  size_t element) const {
  if (config_.is_stream_ordered) {
    const Memory& second = generations[config_.is_transactional ? 1 : 0];
    return {.generations = {At(generations[0], element), At(second, element)},
            .current = &words()->current};
  }
  return {.generations = {At(generations[generation_], element), At(generations[next()], element)},
          .current = nullptr};
}

// A chunk may begin within a byte if chunk lengths are not multiples of 8, and so may the elements
// behind a cut, but kernels need whole bytes.
std::vector<uint8_t> Compressor::Aligned(std::vector<uint8_t> packed) const {
  if (config_.cuts != nullptr) {
    const std::vector<uint8_t> spread = config_.cuts->Spread(packed);
    packed.insert(packed.end(), spread.begin(), spread.end());
    return packed;
  }
  const size_t length = config_.count;
  if (config_.chunks == 1 || length % 8 == 0) return packed;
  const size_t stride = kernels::BitBytes(length);
  std::vector<uint8_t> aligned(config_.chunks * stride);
  for (size_t chunk = 0; chunk < config_.chunks; ++chunk) {
    CopyBits(packed, chunk * length, length, aligned.data() + chunk * stride);
  }
  return aligned;
}

void Compressor::Commit() {
  generation_ = next();
  has_previous_ = has_two_generations();
  has_failed_call_ = false;
  lacks_results_ = false;
  ++age_;
  ++epoch_;
}

void Compressor::DiscardNonfinite() {
  ++nonfinite_calls_;
  DiscardFailed();
  has_failed_call_ = false;  // no rank commits such a call
}

void Compressor::Revert() {
  // After a call that could not be enqueued the other generation may be half written.
  if (!has_previous_ || has_failed_call_) return;
  generation_ = next();
  has_previous_ = false;
  lacks_results_ = false;
  --age_;
  if (calls_ != 0) --calls_;
  --epoch_;
}

void Compressor::DiscardFailed() {
  has_failed_call_ = true;
  has_previous_ = false;
  if (config_.is_transactional || !config_.codec.has_feedback()) return;
  ClearResiduals();
  ++residual_resets_;
}

void Compressor::Reset() {
  op_.reset();
  pair_end_.reset();
  calls_ = 0;
  has_failed_call_ = false;
  if (age_ != 0 && config_.codec.has_feedback()) ++residual_resets_;
  ClearResiduals();
}

void Compressor::ClearResiduals() {
  has_previous_ = false;
  for (Memory* residual : {&worker_[generation_], &server_[generation_]}) {
    // Only logged: a device that cannot fill memory fails every later call, too.
    if (Status status = residual->Clear(); !status.ok()) {
      Log(LogLevel::kWarn, "residuals of tensor {} cannot be reset: {}", config_.tensor_id,
          status.text());
    }
  }
  age_ = 0;
}

Result<Compressor::ServerResidual> Compressor::NewServerResidual(size_t elements) const {
  ServerResidual residual{.elements = elements, .generations = {}};
  if (has_server_residual()) {
    ONEBIT_TRY(NewGenerations(elements, "a server residual", residual.generations));
  }
  return residual;
}

Result<Compressor::WorkerResidual> Compressor::NewWorkerResidual(size_t begin, size_t count,
                                                                 bool has_two_levels) const {
  WorkerResidual residual{
      .begin = begin, .count = count, .has_two_levels = has_two_levels, .generations = {}};
  ONEBIT_TRY(NewGenerations(count, "a worker residual", residual.generations));
  return residual;
}

// Buffers are never empty, so that a null pointer always means "this mode has none".
Status Compressor::NewGenerations(size_t elements, const char* purpose, Memory* generations) const {
  const size_t bytes = std::max<size_t>(elements, 1) * kernels::BytesOf(config_.residual_type);
  for (int generation = 0; generation < (config_.is_transactional ? 2 : 1); ++generation) {
    ONEBIT_ASSIGN_OR_RETURN(generations[generation], NewMemory(bytes, purpose));
  }
  return OkStatus();
}

void Compressor::ReplaceWorker(WorkerResidual residual) {
  worker_[generation_] = std::move(residual.generations[0]);
  worker_[generation_ ^ 1] = std::move(residual.generations[1]);
  config_.worker_begin = residual.begin;
  config_.worker_count = residual.count;
  config_.has_two_levels = residual.has_two_levels;
}

void Compressor::ReplaceServer(ServerResidual residual) {
  server_[generation_] = std::move(residual.generations[0]);
  server_[generation_ ^ 1] = std::move(residual.generations[1]);
  config_.server_elements = residual.elements;
}

Result<Compressor::Layout> Compressor::NewOneLevel(size_t server_elements) const {
  Layout layout;
  layout.server_elements = server_elements;
  if (config_.codec.has_feedback()) {
    ONEBIT_TRY(NewGenerations(config_.elements(), "a worker residual", layout.worker));
  }
  if (has_server_residual()) {
    ONEBIT_TRY(NewGenerations(server_elements, "a server residual", layout.server));
  }
  return layout;
}

void Compressor::Swap(Layout* layout) {
  std::swap(worker_, layout->worker);
  std::swap(server_, layout->server);
  std::swap(config_.worker_count, layout->worker_count);
  std::swap(config_.worker_begin, layout->worker_begin);
  std::swap(config_.worker_places, layout->worker_places);
  std::swap(config_.server_elements, layout->server_elements);
  std::swap(config_.has_two_levels, layout->has_two_levels);
  std::swap(config_.levels, layout->levels);
}

void Compressor::Keep(Layout layout) {
  if (!config_.location.is_device()) return;
  for (auto* memory : {&layout.worker, &layout.server}) {
    former_.insert(former_.end(), std::make_move_iterator(std::begin(*memory)),
                   std::make_move_iterator(std::end(*memory)));
  }
}

size_t Compressor::residual_bytes() const {
  size_t bytes = 0;
  for (int generation = 0; generation < 2; ++generation) {
    bytes += worker_[generation].size() + server_[generation].size();
  }
  return bytes;
}

}  // namespace onebit
