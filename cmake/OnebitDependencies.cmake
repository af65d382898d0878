# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
# Finds what is optional and remembers why something is off, for the configure summary.

# onebit_feature(<name> <ON|OFF> <reason when off>): one line of the summary.
# No text may hold a semicolon: the property is a list.
function(onebit_feature name state reason)
  set_property(GLOBAL APPEND PROPERTY ONEBIT_FEATURES "${name}|${state}|${reason}")
endfunction()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium>=1.0.12)

set(ONEBIT_HAVE_HIGHWAY OFF)
if(NOT ONEBIT_WITH_HIGHWAY)
  onebit_feature("SIMD kernels (Highway)" OFF "ONEBIT_WITH_HIGHWAY=OFF, scalar kernels are used")
else()
  find_package(hwy 1.0.3 CONFIG QUIET)
  if(NOT hwy_FOUND)
    pkg_check_modules(HWY QUIET IMPORTED_TARGET libhwy>=1.0.3)
  endif()
  if(hwy_FOUND OR HWY_FOUND)
    set(ONEBIT_HAVE_HIGHWAY ON)
    onebit_feature("SIMD kernels (Highway)" ON "")
  else()
    onebit_feature("SIMD kernels (Highway)" OFF
                   "Highway >= 1.0.3 not found (libhwy-dev), scalar kernels are used")
  endif()
endif()
