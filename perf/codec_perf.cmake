# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
# Speed of the kernels.
find_package(benchmark QUIET)
if(NOT benchmark_FOUND)
  onebit_feature("codec_perf" OFF "Google Benchmark not found (libbenchmark-dev)")
  return()
endif()
onebit_feature("codec_perf" ON "")

set(dir ${CMAKE_CURRENT_LIST_DIR})
add_executable(codec_perf
  ${dir}/codec_perf.cc
  ${dir}/codec_perf_buffers.cc
  ${dir}/codec_perf_ceiling.cc
  ${dir}/codec_perf_cuda.cc
  ${dir}/codec_perf_cuda_session.cc
  ${dir}/codec_perf_lossless.cc
  ${dir}/codec_perf_low_bit.cc
  ${dir}/codec_perf_sparse.cc
  ${dir}/codec_perf_measure.cc
  ${dir}/codec_perf_multipass.cc)
onebit_configure_target(codec_perf)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(codec_perf PRIVATE -O3)  # it times loops of its own as ceilings
endif()
set_target_properties(codec_perf PROPERTIES UNITY_BUILD OFF)  # benchmarks have the names of kernels
# Kernels of a device are launched by the library's internal functions.
target_link_libraries(codec_perf PRIVATE
  onebit_kernels_cpu onebit_core onebit_perf_sweep benchmark::benchmark)
if(TARGET onebit_device_cuda)
  add_dependencies(codec_perf onebit_device_cuda)
endif()
set_target_properties(codec_perf PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/perf)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_sources(codec_perf PRIVATE ${dir}/codec_perf_ceiling_avx512.cc)
  set_source_files_properties(${dir}/codec_perf_ceiling_avx512.cc
    TARGET_DIRECTORY codec_perf PROPERTIES COMPILE_OPTIONS -mavx512f)
  target_compile_definitions(codec_perf PRIVATE ONEBIT_PERF_HAVE_AVX512=1)
endif()
