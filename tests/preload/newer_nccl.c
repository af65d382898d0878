/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Stands for an NCCL of the future, which has functions that the drop-in does not know. */
int ncclGetVersion(int* version);
int pncclGetVersion(int* version);
int ncclFoo(void);
int pncclFoo(void);
extern const char* const textOfLog;

/* NCCL's is a text in its log, too. */
static const char text[] = "NCCL version 9.1.2+cuda99.0";
const char* const textOfLog = text;

int ncclGetVersion(int* version) {
  *version = 90102;
  return 0;
}
int pncclGetVersion(int* version) { return ncclGetVersion(version); }
int ncclFoo(void) { return 0; }
int pncclFoo(void) { return 0; }
