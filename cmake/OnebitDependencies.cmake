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

if(NOT ONEBIT_HAVE_HIGHWAY)
  add_compile_definitions(ONEBIT_WITHOUT_HIGHWAY)
endif()

# Ranges for NVIDIA's profilers are a header alone.
find_path(ONEBIT_NVTX_INCLUDE nvtx3/nvToolsExt.h
  HINTS ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES include
  PATHS /usr/local/cuda DOC "Folder of NVTX's headers")
mark_as_advanced(ONEBIT_NVTX_INCLUDE)
if(ONEBIT_NVTX_INCLUDE)
  onebit_feature("ranges for profilers (NVTX)" ON "")
else()
  onebit_feature("ranges for profilers (NVTX)" OFF
                 "nvtx3/nvToolsExt.h not found (CUDA_HOME, /usr/local/cuda)")
endif()

# The kernels for GPUs are compiled by calling nvcc, not by CMake's language CUDA: that would ask for
# a compiler for GPUs before it says what it can do without one.
option(ONEBIT_WITH_CUDA "CUDA kernels; they need nvcc >= 12.1 to build, and no GPU" ON)
option(ONEBIT_DEVICE_CODE "Compile CUDA kernels for devices; off: for tests on stand-ins only" ON)
# CUDAARCHS is what CMake itself reads for its language CUDA.
set(default all)
if(DEFINED ENV{CUDAARCHS})
  set(default $ENV{CUDAARCHS})
endif()
set(ONEBIT_CUDA_ARCHITECTURES ${default} CACHE STRING
  "GPUs to compile kernels for, such as 80;90; all: those that releases support and nvcc knows")
set(ONEBIT_HAVE_NVCC OFF)
if(NOT ONEBIT_WITH_CUDA)
  onebit_feature("CUDA kernels" OFF "ONEBIT_WITH_CUDA=OFF")
else()
  find_program(ONEBIT_NVCC nvcc
    HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin
    PATHS /usr/local/cuda DOC "NVIDIA's compiler")
  mark_as_advanced(ONEBIT_NVCC)
  if(NOT ONEBIT_NVCC)
    onebit_feature("CUDA kernels" OFF "nvcc not found (PATH, CUDA_HOME, /usr/local/cuda)")
  else()
    execute_process(COMMAND ${ONEBIT_NVCC} --version
      OUTPUT_VARIABLE nvcc_text ERROR_QUIET RESULT_VARIABLE nvcc_result)
    string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" nvcc_version "${nvcc_text}")
    set(nvcc_version "${CMAKE_MATCH_1}")
    # nvcc preprocesses with a host compiler, and takes none that is newer than it knows.
    set(ONEBIT_NVCC_HOST_COMPILER "")
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      set(ONEBIT_NVCC_HOST_COMPILER -ccbin ${CMAKE_CXX_COMPILER})
    endif()
    if(ONEBIT_DEVICE_CODE AND nvcc_version VERSION_GREATER_EQUAL 12.1)
      set(check ${CMAKE_BINARY_DIR}/CMakeFiles/onebit_nvcc_check)
      file(WRITE ${check}.cu "#include <bit>\n__global__ void Check(float* x) { *x = 0; }\n")
      execute_process(
        COMMAND ${ONEBIT_NVCC} ${ONEBIT_NVCC_HOST_COMPILER} -std=c++20 -arch=sm_90 -cubin
          -o ${check}.cubin ${check}.cu
        OUTPUT_QUIET ERROR_QUIET RESULT_VARIABLE nvcc_result)
    endif()
    # The first with parameters of more than 4 KiB.
    if(nvcc_version VERSION_LESS 12.1)
      onebit_feature("CUDA kernels" OFF "${ONEBIT_NVCC} is of CUDA ${nvcc_version}, not >= 12.1")
    elseif(NOT nvcc_result EQUAL 0)
      onebit_feature("CUDA kernels" OFF
                     "${ONEBIT_NVCC} compiles nothing with this host compiler")
    else()
      set(ONEBIT_HAVE_NVCC ON)
      set(ONEBIT_CUDA_TARGETS ${ONEBIT_CUDA_ARCHITECTURES})
      if(ONEBIT_CUDA_TARGETS STREQUAL "all")
        # A100, H100, B200 and RTX 50.
        set(ONEBIT_CUDA_TARGETS 80 90)
        if(nvcc_version VERSION_GREATER_EQUAL 12.8)
          list(APPEND ONEBIT_CUDA_TARGETS 100 120)
        endif()
      endif()
      if(ONEBIT_DEVICE_CODE)
        onebit_feature("CUDA kernels" ON "")
      else()
        onebit_feature("CUDA kernels" OFF "ONEBIT_DEVICE_CODE=OFF, so they run on stand-ins only")
      endif()
    endif()
  endif()
endif()
