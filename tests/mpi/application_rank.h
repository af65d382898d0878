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
  int thread_level;  // to initialise MPI with; -1: the check sees to it
  void (*run)();
};

std::span<const ApplicationCheck> ApplicationChecks();

// These end the job if something is wrong.
void Fail(const std::string& what);
void Expect(bool is_true, const std::string& what);
void Check(onebitResult_t result, const std::string& what);

int WorldRank();
int WorldSize();

// An allreduce whose result is known: dense, and compressed with error feedback.
void CheckAllReduce(onebitComm_t comm);
// Of what onebitGetLastError says.
bool LastErrorHas(const std::string& text);

// application_levels.cc
void RunOnMainThreadOnly();
void RunOnAnyThread();
void RunAfterFinalize();

}  // namespace onebit::testing
