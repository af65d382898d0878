// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Common parts of the tests of libonebit-cuda.so: the plugin, a current device, arrays on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "device/device_abi.h"

// Expects success; otherwise the test prints the text of the error.
#define EXPECT_OK(call) EXPECT_EQ(call, onebitSuccess) << ::onebit::testing::Plugin().LastError()
#define ASSERT_OK(call) ASSERT_EQ(call, onebitSuccess) << ::onebit::testing::Plugin().LastError()
// Expects this error and this part in its text.
#define EXPECT_ERROR(call, result, part)                                              \
  do {                                                                                \
    EXPECT_EQ(call, result);                                                          \
    EXPECT_THAT(::onebit::testing::Plugin().LastError(), ::testing::HasSubstr(part)); \
  } while (false)

namespace onebit::testing {

// Loads the plugin, once.
const DeviceFunctions& Plugin();
// The same, started.
const DeviceFunctions& StartedPlugin();

// Makes a device current until the end of the scope.
class Entered {
 public:
  explicit Entered(int device) {
    EXPECT_EQ(StartedPlugin().Enter(device, &token_), onebitSuccess) << Plugin().LastError();
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
  ~Entered() { Plugin().Leave(token_); }

 private:
  uintptr_t token_ = 0;
};

inline constexpr uint64_t kTimeoutMs = 30000;

// Waits for the stream.
inline void Finish(onebitStream_t stream) { ASSERT_OK(Plugin().Synchronize(stream, kTimeoutMs)); }

class OwnedStream {
 public:
  OwnedStream() { EXPECT_OK(Plugin().CreateStream(&stream_)); }
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  ~OwnedStream() { Plugin().DestroyStream(stream_); }
  operator onebitStream_t() const { return stream_; }

 private:
  onebitStream_t stream_ = nullptr;
};

class OwnedEvent {
 public:
  OwnedEvent() { EXPECT_OK(Plugin().CreateEvent(&event_)); }
  OwnedEvent(const OwnedEvent&) = delete;
  OwnedEvent& operator=(const OwnedEvent&) = delete;
  ~OwnedEvent() { Plugin().DestroyEvent(event_); }
  operator void*() const { return event_; }

 private:
  void* event_ = nullptr;
};

// Pinned memory.
template <typename T>
class PinnedArray {
 public:
  explicit PinnedArray(size_t size) : size_(size) {
    void* memory = nullptr;
    EXPECT_OK(Plugin().AllocatePinned(size * sizeof(T), &memory));
    data_ = static_cast<T*>(memory);
  }
  PinnedArray(const PinnedArray&) = delete;
  PinnedArray& operator=(const PinnedArray&) = delete;
  ~PinnedArray() { Plugin().FreePinned(data_); }
  T* data() { return data_; }
  T& operator[](size_t i) { return data_[i]; }
  size_t bytes() const { return size_ * sizeof(T); }

 private:
  const size_t size_;
  T* data_ = nullptr;
};

// Memory of the current device.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t size) : size_(size) {
    void* memory = nullptr;
    EXPECT_OK(Plugin().Allocate(size * sizeof(T), &memory));
    data_ = static_cast<T*>(memory);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { Plugin().Free(data_); }
  T* data() { return data_; }
  size_t bytes() const { return size_ * sizeof(T); }

  void Write(const std::vector<T>& values, onebitStream_t stream) {
    EXPECT_OK(Plugin().Copy(data_, values.data(), values.size() * sizeof(T), stream));
    Finish(stream);
  }
  std::vector<T> Read(onebitStream_t stream) const {
    std::vector<T> values(size_);
    EXPECT_OK(Plugin().Copy(values.data(), data_, size_ * sizeof(T), stream));
    Finish(stream);
    return values;
  }

 private:
  const size_t size_;
  T* data_ = nullptr;
};

}  // namespace onebit::testing
