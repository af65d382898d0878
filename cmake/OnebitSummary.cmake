# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
# Prints every optional part and why it is off.
get_property(features GLOBAL PROPERTY ONEBIT_FEATURES)
message(STATUS "onebit ${PROJECT_VERSION}: optional parts")
foreach(feature IN LISTS features)
  string(REPLACE "|" ";" fields "${feature}")
  list(GET fields 0 name)
  list(GET fields 1 state)
  list(GET fields 2 reason)
  if(state)
    message(STATUS "  on   ${name}")
  else()
    message(STATUS "  off  ${name}: ${reason}")
  endif()
endforeach()
