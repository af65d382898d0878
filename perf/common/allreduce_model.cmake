# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
# onebit_allreduce_model: the scalar oracles of whole collectives, for tests and checkers. Included by
# whoever needs it; link it together with onebit_kernels_reference.
if(NOT TARGET onebit_allreduce_model)
  add_library(onebit_allreduce_model OBJECT
    ${CMAKE_CURRENT_LIST_DIR}/allreduce_model.cc ${CMAKE_CURRENT_LIST_DIR}/codec_table.cc
    ${CMAKE_CURRENT_LIST_DIR}/low_bit_model.cc ${CMAKE_CURRENT_LIST_DIR}/sparse_model.cc)
  onebit_configure_target(onebit_allreduce_model)
  target_compile_options(onebit_allreduce_model PRIVATE -ffp-contract=off)
  target_link_libraries(onebit_allreduce_model PUBLIC Threads::Threads)
endif()
