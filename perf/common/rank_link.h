// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Lets a rank exchange data with the other ranks of its run outside of the measured calls: the same
// for the library and for the systems it is compared with.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "onebit/onebit.h"
#include "perf/common/comm_stats.h"

namespace onebit::perf {

// All ranks call the same functions in the same order, each on its own thread. Functions throw
// ToolError, or end the job if that is how the system reports a failure.
class RankLink {
 public:
  virtual ~RankLink() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual void Barrier() = 0;
  // Copies the bytes of rank `root` to all ranks; equal sizes everywhere. The root's are only read.
  virtual void Broadcast(std::span<std::byte> bytes, int root) = 0;

  // True if Sent() is counted. Otherwise the columns of sent bytes stay empty.
  virtual bool counts_sent() const { return false; }
  // Bytes and messages that this rank has handed to the transport so far.
  virtual SentTotal Sent() const { return {}; }

  // Makes calls return that wait for this rank, here and on other ranks. Thread-safe.
  virtual void Release() {}
  // The regular end: waits until all ranks are here.
  virtual void Finish() {}
};

// The ranks of a communicator, which is borrowed.
class CommLink : public RankLink {
 public:
  explicit CommLink(onebitComm_t comm) : comm_(comm) {}

  int rank() const override;
  int ranks() const override;
  void Barrier() override;
  void Broadcast(std::span<std::byte> bytes, int root) override;
  bool counts_sent() const override { return true; }
  SentTotal Sent() const override { return SentBy(comm_); }
  // Only marks the communicator: its handle stays valid.
  void Release() override { onebitCommAbort(comm_); }
  void Finish() override;

 private:
  onebitComm_t comm_;
};

// Returns the record of every rank, by rank, on every rank.
template <class Record>
std::vector<Record> GatherRecords(RankLink& link, const Record& mine) {
  static_assert(std::is_trivially_copyable_v<Record>);
  std::vector<Record> records(static_cast<size_t>(link.ranks()));
  records[static_cast<size_t>(link.rank())] = mine;
  for (size_t root = 0; root < records.size(); ++root) {
    link.Broadcast(std::as_writable_bytes(std::span(&records[root], 1)), static_cast<int>(root));
  }
  return records;
}

}  // namespace onebit::perf
