// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/codec_perf_cuda_session.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace onebit::perf {
namespace {

constexpr size_t kFloatsInMiB = (size_t{1} << 20) / sizeof(float);
constexpr size_t kWordBytes = 128;

// Candidates for the library's CUDA plugin: ONEBIT_PLUGIN_PATH, then the places relative to this
// program that a build and an installation use.
std::vector<std::string> Folders() {
  std::vector<std::string> folders;
  const char* const set = std::getenv("ONEBIT_PLUGIN_PATH");
  std::string_view rest = set == nullptr ? "" : set;
  while (!rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    if (!folder.empty()) folders.emplace_back(folder);
  }
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return folders;
  for (const char* folder : {"src", "lib"}) {
    folders.push_back((program.parent_path().parent_path() / folder).string());
  }
  return folders;
}

const Devices& Open(int device) {
  UseCudaDevice(device);
  const Devices* const devices = Devices::Find(Folders);
  if (devices == nullptr) throw ToolError(Devices::Obstacle().text());
  return *devices;
}

void CheckStatus(const Status& status) {
  if (!status.ok()) throw ToolError(status.text());
}

// A pattern in host memory; large device buffers are filled with copies of it.
template <class Number, class Make>
std::vector<Number> Pattern(const Make& make) {
  std::vector<Number> pattern(size_t{1} << 20);
  std::mt19937 random(1);
  for (size_t i = 0; i < pattern.size(); ++i) pattern[i] = make(random, i);
  return pattern;
}

template <class Number>
void Tile(const CudaStream& stream, std::byte* to, size_t bytes,
          const std::vector<Number>& pattern) {
  const size_t pattern_bytes = pattern.size() * sizeof(Number);
  for (size_t at = 0; at < bytes; at += pattern_bytes) {
    stream.Copy(to + at, pattern.data(), std::min(pattern_bytes, bytes - at));
  }
}

}  // namespace

CudaSession::CudaSession(int device, size_t megabytes)
    : devices_(Open(device)),
      elements_(megabytes * kFloatsInMiB),
      floats_(kFloatBuffers * float_bytes()),
      halves_(elements_ * sizeof(uint16_t)),
      bits_(bit_bytes()),
      scales_(elements_ / kMinBlock * sizeof(float)),
      packets_(kPackets * packet_stride()),
      words_(kWordBytes) {
  auto scope = DeviceScope::Enter(devices_, device);
  CheckStatus(scope.status());
  scope_.emplace(std::move(scope).value());

  const auto numbers = Pattern<float>(
      [](auto& random, size_t) { return std::uniform_real_distribution<float>(-1, 1)(random); });
  const auto halves = Pattern<uint16_t>(
      [](auto& random, size_t) { return static_cast<uint16_t>((random() & 0x83FF) | 0x3C00); });
  const auto bits = Pattern<uint32_t>([](auto& random, size_t) { return random(); });
  // Exact in every output type.
  const auto scales =
      Pattern<float>([](auto&, size_t i) { return 1 + static_cast<float>(i % 64) / 64; });
  Tile(stream_, floats_.data(), kFloatBuffers * float_bytes(), numbers);
  Tile(stream_, halves_.data(), elements_ * sizeof(uint16_t), halves);
  for (size_t packet = 0; packet < kPackets; ++packet) {
    std::byte* const begin = packets_.data() + packet * packet_stride();
    Tile(stream_, begin, packet_scale_bytes(), scales);
    Tile(stream_, begin + packet_scale_bytes(), bit_bytes(), bits);
  }
  stream_.Fill(words_.data(), 0, kWordBytes);
  stream_.Synchronize();
}

// A multiple of 16 bytes for any size in MiB, so every buffer behind it is aligned as well.
size_t CudaSession::packet_scale_bytes() const { return elements_ / kPacketBlock * sizeof(float); }

void CudaSession::Launch(kernels::cuda::Kernel kernel, const void* params) const {
  CheckStatus(devices_.Launch(kernel, params, stream_.get()));
}

double CudaSession::SecondsOf(int times, const std::function<void()>& work) const {
  begin_.Record(stream_);
  for (int i = 0; i < times; ++i) work();
  end_.Record(stream_);
  stream_.Synchronize();
  return CudaEvent::SecondsBetween(begin_, end_) / times;
}

bool CudaSession::HasFaults() const {
  uint32_t word = 0;
  stream_.Copy(&word, faults(), sizeof(word));
  stream_.Fill(faults(), 0, sizeof(word));
  stream_.Synchronize();
  return word != 0;
}

}  // namespace onebit::perf
