// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// All-gathers, all-to-alls, sends and receives through the interposer. preloaded_calls_test.cc has
// the main function, which sets the rules: those for `parts` compress all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "tests/preload/preloaded_program.h"

namespace onebit::testing {
namespace {

constexpr size_t kPart = 5000;  // elements; the rules begin at 1024
constexpr double kInt8Error = 0.02;

std::vector<float> Slice(const std::vector<float>& values, int part) {
  const auto begin = values.begin() + static_cast<ptrdiff_t>(kPart) * part;
  return {begin, begin + kPart};
}

// A buffer with the values of a tensor on this rank.
CudaBuffer Filled(const Rank& self, int number, size_t count) {
  return CudaBuffer(std::as_bytes(std::span<const float>(GradientOf(self.rank, number, count))));
}

double ErrorOf(const Rank& self, const CudaBuffer& buffer, const std::vector<float>& expected) {
  self.stream.Synchronize();
  return RelativeError(FloatsIn(buffer), expected);
}

// The result of an all-to-all for this rank.
std::vector<float> Exchanged(const Rank& self, int number) {
  std::vector<float> all;
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::vector<float> part = Slice(GradientOf(rank, number, kRanks * kPart), self.rank);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::vector<float> Gathered(int number) {
  std::vector<float> all;
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::vector<float> part = GradientOf(rank, number, kPart);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

void ExpectInt8(double error) {
  EXPECT_GT(error, 1e-4);
  EXPECT_LT(error, kInt8Error);
}

TEST(PreloadedPartsTest, AllToAllsAreCompressedFromTheFirstOn) {
  RunNamed("parts", [&](Rank& self) {
    const CudaBuffer send = Filled(self, 1, kRanks * kPart);
    const CudaBuffer recv(kRanks * kPart * sizeof(float));
    const uint64_t before = RealCounts().all_to_alls;
    self.everybody.arrive_and_wait();
    for (int step = 0; step < 3; ++step) {
      ASSERT_EQ(
          ncclAlltoAll(send.data(), recv.data(), kPart, ncclFloat32, self.comm, self.stream.get()),
          ncclSuccess);
      ExpectInt8(ErrorOf(self, recv, Exchanged(self, 1)));
    }
    self.everybody.arrive_and_wait();
    EXPECT_EQ(RealCounts().all_to_alls, before);
    self.everybody.arrive_and_wait();
    // 100 elements for each rank are below the rule's limit.
    ASSERT_EQ(
        ncclAlltoAll(send.data(), recv.data(), 100, ncclFloat32, self.comm, self.stream.get()),
        ncclSuccess);
    self.stream.Synchronize();
    self.everybody.arrive_and_wait();
    EXPECT_EQ(RealCounts().all_to_alls - before, static_cast<uint64_t>(kRanks));
    self.everybody.arrive_and_wait();
  });
}

// Calls without residuals need no tensor, so a group may have equal ones.
TEST(PreloadedPartsTest, EqualCallsOfAGroupAreCompressed) {
  RunNamed("parts", [&](Rank& self) {
    const CudaBuffer sends[] = {Filled(self, 1, kPart), Filled(self, 2, kPart)};
    const CudaBuffer recvs[] = {CudaBuffer(kRanks * kPart * sizeof(float)),
                                CudaBuffer(kRanks * kPart * sizeof(float))};
    for (int step = 0; step < 3; ++step) {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      for (const int i : {0, 1}) {
        ASSERT_EQ(ncclAllGather(sends[i].data(), recvs[i].data(), kPart, ncclFloat32, self.comm,
                                self.stream.get()),
                  ncclSuccess);
      }
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
      for (const int i : {0, 1}) ExpectInt8(ErrorOf(self, recvs[i], Gathered(i + 1)));
    }
  });
}

// An input that stays the same arrives within some calls.
TEST(PreloadedPartsTest, AllGathersMaySendDifferences) {
  RunNamed("differences", [&](Rank& self) {
    const CudaBuffer send = Filled(self, 1, kPart);
    const CudaBuffer recv(kRanks * kPart * sizeof(float));
    std::vector<double> errors;
    for (int step = 0; step < 12; ++step) {
      ASSERT_EQ(
          ncclAllGather(send.data(), recv.data(), kPart, ncclFloat32, self.comm, self.stream.get()),
          ncclSuccess);
      errors.push_back(ErrorOf(self, recv, Gathered(1)));
    }
    // One tensor is believed to be a cycle after four calls.
    EXPECT_LT(errors[2], 1e-6);
    EXPECT_GT(errors[3], 1e-3);
    EXPECT_LT(errors[11], errors[3] / 100);
  });
}

TEST(PreloadedPartsTest, WithoutTheirOperationRulesAreForReductions) {
  RunNamed("dp", [&](Rank& self) {
    const CudaBuffer send = Filled(self, 1, kRanks * kPart);
    const CudaBuffer recv(kRanks * kPart * sizeof(float));
    for (int step = 0; step < 6; ++step) {
      ASSERT_EQ(
          ncclAlltoAll(send.data(), recv.data(), kPart, ncclFloat32, self.comm, self.stream.get()),
          ncclSuccess);
      EXPECT_EQ(ErrorOf(self, recv, Exchanged(self, 1)), 0.0);
    }
  });
}

// A message of each rank to the next one.
struct Ring {
  explicit Ring(const Rank& rank)
      : self(rank), next((rank.rank + 1) % kRanks), previous((rank.rank + kRanks - 1) % kRanks) {}

  ncclResult_t Send(const CudaBuffer& buffer, size_t count) const {
    return ncclSend(buffer.data(), count, ncclFloat32, next, self.comm, self.stream.get());
  }
  ncclResult_t Receive(const CudaBuffer& buffer, size_t count) const {
    return ncclRecv(buffer.data(), count, ncclFloat32, previous, self.comm, self.stream.get());
  }

  const Rank& self;
  const int next;
  const int previous;
};

// Short messages stay exact in the same group.
TEST(PreloadedPartsTest, MessagesAreCompressedByTheirSize) {
  RunNamed("parts", [&](Rank& self) {
    const Ring ring(self);
    constexpr size_t kShort = 16;
    const CudaBuffer send = Filled(self, 1, kPart);
    const CudaBuffer short_send = Filled(self, 2, kShort);
    const CudaBuffer recv(kPart * sizeof(float));
    const CudaBuffer short_recv(kShort * sizeof(float));
    for (int step = 0; step < 3; ++step) {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      ASSERT_EQ(ring.Send(send, kPart), ncclSuccess);
      ASSERT_EQ(ring.Send(short_send, kShort), ncclSuccess);
      ASSERT_EQ(ring.Receive(recv, kPart), ncclSuccess);
      ASSERT_EQ(ring.Receive(short_recv, kShort), ncclSuccess);
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
      ExpectInt8(ErrorOf(self, recv, GradientOf(ring.previous, 1, kPart)));
      EXPECT_EQ(ErrorOf(self, short_recv, GradientOf(ring.previous, 2, kShort)), 0.0);
    }
  });
}

// The two ranks of a message may have it in groups of different calls. Rank 0 has made messages
// that rank 2 has no part in, and agrees with it about later reductions all the same.
TEST(PreloadedPartsTest, RanksGroupMessagesAsTheyLike) {
  RunNamed("parts", [&](Rank& self) {
    const auto stream = self.stream.get();
    const CudaBuffer first = Filled(self, 1, kPart);
    const CudaBuffer second = Filled(self, 2, kPart);
    const CudaBuffer recvs[] = {CudaBuffer(kPart * sizeof(float)),
                                CudaBuffer(kPart * sizeof(float))};
    for (int step = 0; step < 40 && self.rank < 2; ++step) {
      if (self.rank == 0) {
        ASSERT_EQ(ncclGroupStart(), ncclSuccess);
        ASSERT_EQ(ncclSend(first.data(), kPart, ncclFloat32, 1, self.comm, stream), ncclSuccess);
        ASSERT_EQ(ncclSend(second.data(), kPart, ncclFloat32, 1, self.comm, stream), ncclSuccess);
        ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
        continue;
      }
      for (const int i : {0, 1}) {
        ASSERT_EQ(ncclRecv(recvs[i].data(), kPart, ncclFloat32, 0, self.comm, stream), ncclSuccess);
        ExpectInt8(ErrorOf(self, recvs[i], GradientOf(0, i + 1, kPart)));
      }
    }
    Tensor tensor(self, 3, 10'000);
    for (int step = 0; step < 8; ++step) {
      ASSERT_EQ(tensor.AllReduce(self), ncclSuccess);
      EXPECT_EQ(tensor.ErrorOfResult(self) > 1e-3, step >= 3 + kStart) << step;
    }
  });
}

// Rank 1 receives one by one what rank 0 sends in a group, exact messages after compressed ones.
TEST(PreloadedPartsTest, MessagesKeepTheirOrder) {
  RunNamed("parts", [&](Rank& self) {
    constexpr size_t kShort = 16;
    const auto stream = self.stream.get();
    const CudaBuffer send = Filled(self, 1, kPart);
    const CudaBuffer short_send = Filled(self, 2, kShort);
    const CudaBuffer recv(kPart * sizeof(float));
    const CudaBuffer short_recv(kShort * sizeof(float));
    if (self.rank == 0) {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      ASSERT_EQ(ncclSend(send.data(), kPart, ncclFloat32, 1, self.comm, stream), ncclSuccess);
      ASSERT_EQ(ncclSend(short_send.data(), kShort, ncclFloat32, 1, self.comm, stream),
                ncclSuccess);
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    } else if (self.rank == 1) {
      ASSERT_EQ(ncclRecv(recv.data(), kPart, ncclFloat32, 0, self.comm, stream), ncclSuccess);
      ASSERT_EQ(ncclRecv(short_recv.data(), kShort, ncclFloat32, 0, self.comm, stream),
                ncclSuccess);
      ExpectInt8(ErrorOf(self, recv, GradientOf(0, 1, kPart)));
      EXPECT_EQ(ErrorOf(self, short_recv, GradientOf(0, 2, kShort)), 0.0);
    }
  });
}

TEST(PreloadedPartsTest, AMessageToItselfIsACopy) {
  RunNamed("parts", [&](Rank& self) {
    const CudaBuffer send = Filled(self, 1, kPart);
    const CudaBuffer recv(kPart * sizeof(float));
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    ASSERT_EQ(ncclSend(send.data(), kPart, ncclFloat32, self.rank, self.comm, self.stream.get()),
              ncclSuccess);
    ASSERT_EQ(ncclRecv(recv.data(), kPart, ncclFloat32, self.rank, self.comm, self.stream.get()),
              ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(ErrorOf(self, recv, GradientOf(self.rank, 1, kPart)), 0.0);
  });
}

// Rank 0 sends more equal messages in a group than one may have, and tells rank 1, which receives
// them one by one.
TEST(PreloadedPartsTest, TooManyEqualMessagesAreAnErrorOnBothRanks) {
  RunNamed("parts", [&](Rank& self) {
    constexpr int kMessages = 17;
    const CudaBuffer buffer = Filled(self, 1, kPart);
    const auto stream = self.stream.get();
    if (self.rank == 0) {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      for (int i = 0; i < kMessages; ++i) {
        ASSERT_EQ(ncclSend(buffer.data(), kPart, ncclFloat32, 1, self.comm, stream), ncclSuccess);
      }
      EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    } else if (self.rank == 1) {
      for (int i = 0; i < kMessages; ++i) {
        static_cast<void>(ncclRecv(buffer.data(), kPart, ncclFloat32, 0, self.comm, stream));
      }
    }
    EXPECT_NE(AwaitAsyncError(self.comm), ncclSuccess);
    self.everybody.arrive_and_wait();
    EXPECT_EQ(ncclCommAbort(std::exchange(self.comm, nullptr)), ncclSuccess);
  });
}

TEST(PreloadedPartsTest, EmptyMessagesAreNone) {
  RunNamed("parts", [&](Rank& self) {
    const Ring ring(self);
    const CudaBuffer send = Filled(self, 1, kPart);
    const CudaBuffer recv(kPart * sizeof(float));
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    ASSERT_EQ(ncclSend(nullptr, 0, ncclFloat32, ring.next, self.comm, self.stream.get()),
              ncclSuccess);
    ASSERT_EQ(ncclRecv(nullptr, 0, ncclFloat32, ring.previous, self.comm, self.stream.get()),
              ncclSuccess);
    ASSERT_EQ(ring.Send(send, kPart), ncclSuccess);
    ASSERT_EQ(ring.Receive(recv, kPart), ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    ExpectInt8(ErrorOf(self, recv, GradientOf(ring.previous, 1, kPart)));
  });
}

TEST(PreloadedPartsTest, AllGathersMayBeInPlace) {
  RunNamed("parts", [&](Rank& self) {
    const CudaBuffer part = Filled(self, 1, kPart);
    CudaBuffer whole(kRanks * kPart * sizeof(float));
    std::vector<float> values(kRanks * kPart);
    const std::vector<float> own = FloatsIn(part);
    std::copy(own.begin(), own.end(), values.begin() + static_cast<ptrdiff_t>(kPart) * self.rank);
    whole.Write(std::as_bytes(std::span<const float>(values)));
    const auto* const begin =
        static_cast<const std::byte*>(whole.data()) + self.rank * kPart * sizeof(float);
    ASSERT_EQ(ncclAllGather(begin, whole.data(), kPart, ncclFloat32, self.comm, self.stream.get()),
              ncclSuccess);
    ExpectInt8(ErrorOf(self, whole, Gathered(1)));
  });
}

}  // namespace
}  // namespace onebit::testing
