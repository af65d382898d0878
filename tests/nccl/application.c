/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A program in C that uses onebit/nccl.h and is linked with NCCL. It needs no GPU to be refused.
 */
#include <onebit/nccl.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  onebitComm_t comm = NULL;
  const onebitResult_t result = onebitCommInitNccl(&comm, NULL, NULL);
  const char* text = onebitGetLastError(NULL);
  printf("%d: %s\n", (int)result, text);
  return result == onebitInvalidArgument && strstr(text, "the communicator is NULL") != NULL ? 0
                                                                                             : 1;
}
