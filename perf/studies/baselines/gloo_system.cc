// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A full mesh of TCP connections; ranks find each other in files.
#include "perf/studies/baselines/gloo_system.h"

#include <charconv>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

constexpr std::chrono::minutes kTimeout{10};  // of a call; a slow link takes a minute

std::optional<int> NumberOf(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  const std::string_view digits(text);
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    throw UsageError(fmt::format("{}={} is not a number", name, text));
  }
  return number;
}

int NeededNumber(const char* name) {
  const std::optional<int> number = NumberOf(name);
  if (number) return *number;
  throw UsageError(fmt::format(
      "{} is not set: start this program as ranks, with onebit_run -n N, perf/lab run or torchrun",
      name));
}

std::string StoreFolder(const std::string& wanted) {
  if (!wanted.empty()) {
    if (std::filesystem::is_directory(wanted)) return wanted;
    throw UsageError(fmt::format("--store {}: there is no such folder", wanted));
  }
  const char* rendezvous = std::getenv("ONEBIT_RENDEZVOUS");
  if (rendezvous == nullptr || *rendezvous != '/') {
    throw UsageError(
        "the ranks have no folder to meet in: give --store DIR, a new folder that all of them can "
        "see");
  }
  // The launcher made its folder for this job and removes it with all that is in it.
  const std::filesystem::path folder = std::filesystem::path(rendezvous).parent_path() / "gloo";
  std::filesystem::create_directories(folder);
  return folder;
}

std::string InterfaceOf(const std::string& wanted, int ranks) {
  if (!wanted.empty()) return wanted;
  return NumberOf("LOCAL_WORLD_SIZE").value_or(ranks) == ranks ? "lo" : "eth0";
}

}  // namespace

GlooSystem::GlooSystem(const GlooOptions& options) {
  const int rank = NeededNumber("RANK");
  const int ranks = NeededNumber("WORLD_SIZE");
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    throw UsageError(fmt::format("RANK={} is not a rank of WORLD_SIZE={}", rank, ranks));
  }
  interface_ = InterfaceOf(options.interface, ranks);
  gloo::rendezvous::FileStore store(StoreFolder(options.store));
  gloo::transport::tcp::attr attributes;
  attributes.iface = interface_;
  std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attributes);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->setTimeout(kTimeout);
  context->connectFullMesh(store, device);
  context_ = std::move(context);
}

GlooSystem::~GlooSystem() = default;

int GlooSystem::rank() const { return context_->rank; }
int GlooSystem::ranks() const { return context_->size; }

std::string GlooSystem::version() const {
  return fmt::format("Gloo {}.{}.{} over tcp, {}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR,
                     GLOO_VERSION_PATCH, interface_);
}

size_t GlooSystem::max_count() const { return INT_MAX; }  // its own loop over elements counts ints

void GlooSystem::AllReduce(const float* send, float* recv, size_t count) {
  if (count == 0) return;
  gloo::AllreduceOptions options(context_);
  options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
  options.setReduceFunction(
      static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
  options.setTag(tag_++);
  if (send != recv) options.setInput(const_cast<float*>(send), count);  // only read
  options.setOutput(recv, count);
  gloo::allreduce(options);
}

void GlooSystem::Barrier() {
  gloo::BarrierOptions options(context_);
  options.setTag(tag_++);
  gloo::barrier(options);
}

void GlooSystem::Broadcast(std::span<std::byte> bytes, int root) {
  if (bytes.empty()) return;
  gloo::BroadcastOptions options(context_);
  options.setTag(tag_++);
  options.setRoot(root);
  options.setOutput(bytes.data(), bytes.size());
  gloo::broadcast(options);
}

}  // namespace onebit::perf
