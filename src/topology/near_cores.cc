// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/near_cores.h"

#include <algorithm>
#include <memory>
#include <utility>

#ifdef ONEBIT_HAVE_HWLOC
#include <hwloc.h>
#endif

namespace onebit {
namespace {

constexpr uint32_t kMostThreads = 3;

NearCores AllowedCores() {
  Placement here = PlacementOfThisThread();
  return {.count = here.processor_count(), .processors = std::move(here.processors)};
}

#ifdef ONEBIT_HAVE_HWLOC

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, DestroyTopology>;

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

Topology LoadTopology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  Topology topology(raw);
  return hwloc_topology_load(raw) == 0 ? std::move(topology) : nullptr;
}

// Returns the NUMA node whose processors include `where`; null if there is none or it is unknown.
hwloc_obj_t NodeOf(hwloc_topology_t topology, hwloc_const_cpuset_t where) {
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    if (hwloc_bitmap_isincluded(where, node->cpuset)) return node;
  }
  return nullptr;
}

ProcessorSet SetOf(hwloc_const_bitmap_t bitmap) {
  ProcessorSet set;
  for (int bit = hwloc_bitmap_first(bitmap); bit >= 0; bit = hwloc_bitmap_next(bitmap, bit)) {
    const auto word = static_cast<size_t>(bit) / 64;
    if (set.size() <= word) set.resize(word + 1);
    set[word] |= uint64_t{1} << (bit % 64);
  }
  return set;
}

#endif

}  // namespace

NearCores CoresNearThisThread() {
#ifdef ONEBIT_HAVE_HWLOC
  const Topology topology = LoadTopology();
  const Bitmap where(hwloc_bitmap_alloc());
  const Bitmap usable(hwloc_bitmap_alloc());
  if (topology != nullptr && where != nullptr && usable != nullptr &&
      hwloc_get_last_cpu_location(topology.get(), where.get(), HWLOC_CPUBIND_THREAD) == 0 &&
      hwloc_get_cpubind(topology.get(), usable.get(), HWLOC_CPUBIND_THREAD) == 0) {
    if (const hwloc_obj_t node = NodeOf(topology.get(), where.get()); node != nullptr) {
      hwloc_bitmap_and(usable.get(), usable.get(), node->cpuset);
    }
    NearCores cores;
    cores.processors = SetOf(usable.get());
    for (hwloc_obj_t core = nullptr;
         (core = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_CORE, core)) != nullptr;) {
      if (hwloc_bitmap_intersects(core->cpuset, usable.get())) ++cores.count;
    }
    if (cores.count != 0) return cores;  // otherwise hwloc does not know the machine's cores
  }
#endif
  return AllowedCores();
}

uint32_t ThreadsToSpare(uint32_t cores, size_t sharing) {
  const auto share = static_cast<uint32_t>(cores / std::max<size_t>(sharing, 1));
  return share == 0 ? 0 : std::min(share - 1, kMostThreads);
}

}  // namespace onebit
