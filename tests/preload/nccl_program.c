/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A library that uses NCCL. It is read and never loaded.
 */
int ncclGetVersion(int* version);

int onebitTestVersionOfNccl(void) {
  int version = 0;
  return ncclGetVersion(&version) == 0 ? version : 0;
}
