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

set(ONEBIT_HAVE_HWLOC OFF)
pkg_check_modules(HWLOC QUIET IMPORTED_TARGET hwloc>=2.0)
if(HWLOC_FOUND)
  set(ONEBIT_HAVE_HWLOC ON)
  onebit_feature("NUMA nodes (hwloc)" ON "")
else()
  onebit_feature("NUMA nodes (hwloc)" OFF
                 "hwloc >= 2.0 not found (libhwloc-dev), every processor counts as a core")
endif()

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
