// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// FrameLink: frames between two processes of this host, over a Unix socket with an abstract name,
// which leaves no file behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace onebit::testing::nccl {

enum class FrameKind : uint32_t {
  kJoin,
  kWelcome,
  kRefusal,
  kState,
  kConnections,
  kOperation,
  kResult
};

struct Frame {
  FrameKind kind = FrameKind::kJoin;
  uint64_t number = 0;  // an operation and its result have the same
  std::unique_ptr<std::byte[]> content;
  size_t bytes = 0;

  std::span<const std::byte> span() const { return {content.get(), bytes}; }
};

class FrameLink {
 public:
  using Parts = std::vector<std::span<const std::byte>>;

  FrameLink() = default;
  ~FrameLink();
  FrameLink(const FrameLink&) = delete;
  FrameLink& operator=(const FrameLink&) = delete;

  // The functions below return false if the socket fails or has ended.
  bool Listen(const std::string& name);
  bool Accept(const FrameLink& listener);
  bool Connect(const std::string& name);
  // The content is that of all parts in turn. Any number of threads may send.
  bool Send(FrameKind kind, uint64_t number, const Parts& parts);
  // One thread at a time.
  bool Receive(Frame* frame);
  // Ends both directions at once: calls that wait return false. Thread-safe.
  void ShutDown();

 private:
  bool SendAll(std::span<const std::byte> bytes);
  bool ReceiveAll(std::span<std::byte> bytes);

  int socket_ = -1;
  std::mutex send_mutex_;  // held while a frame is sent
};

// Values that frames contain, for processes of one program: they are copied as they are in memory.
class Packer {
 public:
  template <typename Value>
  void Put(const Value& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <typename Value>
  Value Take() {
    Value value;
    std::memcpy(&value, TakeBytes(sizeof value).data(), sizeof value);
    return value;
  }
  std::span<const std::byte> TakeBytes(size_t bytes) {
    const auto taken = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return taken;
  }
  std::string RestAsText() const {
    return {reinterpret_cast<const char*>(rest_.data()), rest_.size()};
  }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace onebit::testing::nccl
