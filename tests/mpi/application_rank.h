// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Checks of an application that uses MPI itself; each is run by all ranks of a job.
#pragma once

#include <mpi.h>

#include <span>
#include <string>

#include "onebit/mpi.h"

namespace onebit::testing {

struct ApplicationCheck {
  const char* name;
  int thread_level;  // with which MPI is initialised; -1: by the check
  void (*run)();
};

std::span<const ApplicationCheck> ApplicationChecks();

// These end the job if something is wrong.
void Fail(const std::string& what);
void Expect(bool is_true, const std::string& what);
void Check(onebitResult_t result, const std::string& what);

int WorldRank();
int WorldSize();

// An allreduce with a known result: dense, and compressed with error feedback.
void CheckAllReduce(onebitComm_t comm);
// True if onebitGetLastError contains this.
bool LastErrorHas(const std::string& text);

// application_levels.cc
void RunOnMainThreadOnly();
void RunOnAnyThread();
void RunAfterFinalize();

}  // namespace onebit::testing
