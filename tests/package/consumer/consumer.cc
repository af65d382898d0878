// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A foreign C++ program: a communicator of one rank through the C++ header.
#include <onebit/onebit.hpp>

int main() {
  onebit::UniqueComm comm;
  return onebit::MakeComms({&comm, 1}) == onebitSuccess ? 0 : 1;
}
