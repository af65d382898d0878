/* SPDX-FileCopyrightText: The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 */
#include <onebit/onebit.h>

int main(void) {
  int version = 0;
  return onebitGetVersion(&version) == onebitSuccess && version == ONEBIT_VERSION_CODE ? 0 : 1;
}
