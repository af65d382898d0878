// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A ring in shared memory: frames of all sizes around its end, its room, and what the other process
// may have written into it.
#include "plugins/common/frame_ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "plugins/transport_socket/mesh.h"
#include "plugins/transport_socket/shared_segment.h"

namespace onebit::sockets {
namespace {

using plugin::FrameRing;
using Result = FrameRing::Result;

constexpr size_t kCapacity = 16u << 10;
constexpr size_t kPiece = 4u << 10;

// Both ends, on memory of exactly its size, so that AddressSanitizer detects what lies outside.
struct Ends {
  static FrameRing::Memory* Aligned(std::byte* storage) {
    return new (storage + (64 - reinterpret_cast<uintptr_t>(storage) % 64) % 64)
        FrameRing::Memory{};
  }
  std::unique_ptr<std::byte[]> storage{new std::byte[FrameRing::BytesOf(kCapacity) + 64]};
  FrameRing::Memory* memory = Aligned(storage.get());
  FrameRing producer{memory, kCapacity};
  FrameRing consumer{memory, kCapacity};
};

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Result Write(Ends& ends, const std::string& header, const std::string& payload,
             onebitFrameKind kind = onebitFrameShort) {
  return ends.producer.Write(kind, BytesOf(header), BytesOf(payload));
}

// The next frame as "header payload".
std::string Read(Ends& ends) {
  FrameRing::Frame frame;
  if (ends.consumer.Peek(&frame) != Result::kDone) return "none";
  std::string payload(frame.payload_bytes, '?');
  ends.consumer.CopyPayload(frame, reinterpret_cast<std::byte*>(payload.data()));
  if (const std::byte* in_place = ends.consumer.PayloadInPlace(frame); in_place != nullptr) {
    EXPECT_EQ(std::memcmp(in_place, payload.data(), payload.size()), 0);
  }
  std::string text(reinterpret_cast<const char*>(frame.header), frame.header_bytes);
  ends.consumer.Release(frame);
  return text + " " + payload;
}

TEST(FrameRingTest, FramesOfAllSizesComeInOrderAndWhole) {
  Ends ends;
  std::mt19937 random(7);
  std::vector<std::string> expected;
  size_t read = 0;
  for (int i = 0; i < 5000; ++i) {
    const std::string header(1 + random() % ONEBIT_TRANSPORT_FRAME_HEADER_BYTES,
                             static_cast<char>('a' + i % 26));
    const std::string payload(random() % (kPiece + 1), static_cast<char>('A' + i % 26));
    while (Write(ends, header, payload, onebitFrameLong) == Result::kNothing) {
      ASSERT_LT(read, expected.size());
      ASSERT_EQ(Read(ends), expected[read++]);
    }
    expected.push_back(header + " " + payload);
  }
  while (read < expected.size()) ASSERT_EQ(Read(ends), expected[read++]);
  EXPECT_EQ(Read(ends), "none");
  EXPECT_FALSE(ends.consumer.has_frames());
}

// A receiver that takes long frames slowly must not hold up short ones.
TEST(FrameRingTest, LongFramesLeaveRoomForShortOnes) {
  Ends ends;
  const std::string payload(kPiece, 'p');
  size_t sent = 0;
  while (Write(ends, "h", payload, onebitFrameLong) == Result::kDone) ++sent;
  EXPECT_GE(sent, 3u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Write(ends, "short", ""), Result::kDone) << i;
}

TEST(FrameRingTest, TheConsumerIsToldThatTheProducerWaits) {
  Ends ends;
  const std::string payload(kPiece, 'p');
  FrameRing::Frame frame;
  ASSERT_EQ(Write(ends, "h", payload, onebitFrameLong), Result::kDone);
  ASSERT_EQ(ends.consumer.Peek(&frame), Result::kDone);
  EXPECT_FALSE(ends.consumer.Release(frame));  // there was room
  EXPECT_FALSE(ends.producer.TakeRoom());      // nor was any lacking
  while (Write(ends, "h", payload, onebitFrameLong) == Result::kDone) {
  }
  EXPECT_FALSE(ends.producer.TakeRoom());
  ASSERT_EQ(ends.consumer.Peek(&frame), Result::kDone);
  EXPECT_TRUE(ends.consumer.Release(frame));
  EXPECT_TRUE(ends.producer.TakeRoom());
  EXPECT_FALSE(ends.producer.TakeRoom());  // it was told once
  ASSERT_EQ(ends.consumer.Peek(&frame), Result::kDone);
  EXPECT_FALSE(ends.consumer.Release(frame));  // it was told once
}

TEST(FrameRingTest, IndicesOfTheOtherProcessAreNotBelieved) {
  for (const uint64_t written : {uint64_t{1}, uint64_t{7}, uint64_t{kCapacity + 8}, UINT64_MAX}) {
    Ends ends;
    FrameRing::Frame frame;
    ends.memory->written = written;
    EXPECT_EQ(ends.consumer.Peek(&frame), Result::kBroken) << written;
  }
  for (const uint64_t read : {uint64_t{1}, uint64_t{kCapacity}, UINT64_MAX - kCapacity}) {
    Ends ends;
    ends.memory->read = read;
    EXPECT_EQ(Write(ends, "h", ""), Result::kBroken) << read;
  }
}

TEST(FrameRingTest, SizesOfTheOtherProcessAreNotBelieved) {
  struct Sizes {
    uint32_t header;
    uint32_t payload;
  };
  for (const Sizes sizes : {Sizes{ONEBIT_TRANSPORT_FRAME_HEADER_BYTES + 1, 0}, Sizes{1, kPiece + 1},
                            Sizes{UINT32_MAX, 0}, Sizes{0, UINT32_MAX},
                            Sizes{100, 100}}) {  // the last one is longer than what was written
    Ends ends;
    ASSERT_EQ(Write(ends, "header", "payload"), Result::kDone);
    std::memcpy(static_cast<void*>(ends.memory + 1), &sizes, sizeof sizes);
    FrameRing::Frame frame;
    EXPECT_EQ(ends.consumer.Peek(&frame), Result::kBroken) << sizes.header << " " << sizes.payload;
  }
}

TEST(FrameRingTest, APayloadFitsFourTimes) {
  EXPECT_EQ(FrameRing::CapacityFor(0), 16u << 10);
  EXPECT_EQ(FrameRing::CapacityFor(4096), 16u << 10);
  EXPECT_EQ(FrameRing::CapacityFor(4097), 32u << 10);
}

TEST(MeshTest, ManyPeersHaveSmallerRings) {
  EXPECT_EQ(Mesh::RingCapacity(0, 0), 256u << 10);
  EXPECT_EQ(Mesh::RingCapacity(32, 0), 256u << 10);
  EXPECT_EQ(Mesh::RingCapacity(33, 0), 128u << 10);
  EXPECT_EQ(Mesh::RingCapacity(100'000, 0), 16u << 10);
  EXPECT_EQ(Mesh::RingCapacity(100'000, 8192), 32u << 10);
}

TEST(SharedSegmentTest, BothMappingsAreTheSameMemory) {
  Descriptor file;
  std::string problem;
  const SharedSegment made = SharedSegment::Create(10'000, &file, &problem);
  ASSERT_TRUE(made.is_mapped()) << problem;
  const SharedSegment mapped = SharedSegment::Map(file, 10'000, &problem);
  ASSERT_TRUE(mapped.is_mapped()) << problem;
  made.memory()[9999] = std::byte{42};
  EXPECT_EQ(mapped.memory()[9999], std::byte{42});
}

// The peer's ftruncate would be a SIGBUS of this process.
TEST(SharedSegmentTest, MemoryThatCouldShrinkIsRefused) {
  std::string problem;
  const Descriptor unsealed(memfd_create("test", MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 4096), 0);
  EXPECT_FALSE(SharedSegment::Map(unsealed, 4096, &problem).is_mapped());
  EXPECT_NE(problem.find("not sealed"), problem.npos);
  Descriptor file;
  ASSERT_TRUE(SharedSegment::Create(4096, &file, &problem).is_mapped());
  EXPECT_FALSE(SharedSegment::Map(file, 8192, &problem).is_mapped());
  EXPECT_NE(ftruncate(file.get(), 0), 0);
  const Descriptor directory(open("/", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(SharedSegment::Map(directory, 4096, &problem).is_mapped());
}

// Beyond the limit ftruncate would end the process.
TEST(SharedSegmentTest, ALimitOfFileSizesIsAReason) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit low{.rlim_cur = 1000, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  Descriptor file;
  std::string problem;
  EXPECT_FALSE(SharedSegment::Create(4096, &file, &problem).is_mapped());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_NE(problem.find("ulimit -f"), problem.npos);
}

}  // namespace
}  // namespace onebit::sockets
