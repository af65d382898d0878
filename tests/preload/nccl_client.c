/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A program of NCCL that knows nothing of onebit, as far as it gets without a GPU. What it prints
 * must not depend on the libraries in front of NCCL. Built as a program, and as a library that
 * another one loads, as Python loads its extensions. */
#include <nccl.h>
#include <onebit/nccl_ext.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int run(void);

static void show(const char* what, ncclResult_t result) {
  printf("%s: %d %s\n", what, (int)result, ncclGetErrorString(result));
}

/* Options as nccl_ext.h describes them. */
static void call_with_options(void) {
#if NCCL_VERSION_CODE >= 23100
  float value = 1;
  ncclConfigExt_t tensor = {.key = {ONEBIT_NCCL_VENDOR, onebitNcclTensor},
                            .val = {.raw = (void*)(uintptr_t)1}};
  ncclConfigExt_t codec = {
      .next = &tensor, .key = {ONEBIT_NCCL_VENDOR, onebitNcclCodec}, .val = {.s = "fp4,start=100"}};
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.ext = &codec;
  show("all-reduce with options",
       ncclAllReduceConfig(&value, &value, 1, ncclFloat32, ncclSum, NULL, NULL, &config));
  show("reduce-scatter with options",
       ncclReduceScatterConfig(&value, &value, 1, ncclFloat32, ncclSum, NULL, NULL, &config));
#endif
}

static void calls(void) {
  int version = 0;
  show("version", ncclGetVersion(&version));
  printf("%d\n", version);
  ncclUniqueId id;
  memset(&id, 0, sizeof id);
  show("unique id", ncclGetUniqueId(&id));
  ncclComm_t comms[2] = {NULL, NULL};
  show("init all", ncclCommInitAll(comms, 2, NULL));
  ncclComm_t comm = NULL;
  show("init rank", ncclCommInitRank(&comm, 1, id, 0));
  show("init of rank 3 of 2", ncclCommInitRank(&comm, 2, id, 3));
  float value = 1;
  show("all-reduce", ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, NULL, NULL));
  show("reduce-scatter", ncclReduceScatter(&value, &value, 1, ncclFloat32, ncclSum, NULL, NULL));
  call_with_options();
  show("broadcast", ncclBcast(&value, 1, ncclFloat32, 0, NULL, NULL));
  show("send", ncclSend(&value, 1, ncclFloat32, 0, NULL, NULL));
  show("group", ncclGroupStart());
  show("inner group", ncclGroupStart());
  show("end of inner group", ncclGroupEnd());
  show("end of group", ncclGroupEnd());
  show("end of no group", ncclGroupEnd());
  show("async error", ncclCommGetAsyncError(NULL, NULL));
  show("destroy", ncclCommDestroy(NULL));
  show("abort", ncclCommAbort(NULL));
}

int run(void) {
  calls();
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    calls();
    exit(0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

#ifdef ONEBIT_TEST_PROGRAM
int main(void) { return run(); }
#endif
