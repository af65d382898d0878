# SPDX-FileCopyrightText: The onebit authors
# SPDX-License-Identifier: Apache-2.0
# Component `wheel` is the part of a Python wheel that CMake builds, installed into the package's folder.
# pyproject.toml asks for it.

add_custom_target(onebit_wheel_parts DEPENDS onebit onebit_python)
install(FILES ${PROJECT_BINARY_DIR}/bindings/python/onebit/_native.py DESTINATION . COMPONENT wheel)
install(FILES ${PROJECT_SOURCE_DIR}/bindings/python/onebit_torch_ddp.py DESTINATION ${SKBUILD_PLATLIB_DIR}
  COMPONENT wheel)

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${SKBUILD_METADATA_DIR}/licenses COMPONENT wheel)

# A wheel has no links, so the library has one name, the SONAME. Plugins are looked for beside it.
set_target_properties(onebit PROPERTIES VERSION ${PROJECT_VERSION_MAJOR})
install(TARGETS onebit LIBRARY DESTINATION lib COMPONENT wheel NAMELINK_SKIP)
foreach(plugin onebit_device_cuda onebit_nccl_preload onebit_transport_mpi_mpich onebit_transport_mpi_openmpi
               onebit_transport_nccl onebit_transport_ucx)
  if(TARGET ${plugin})
    add_dependencies(onebit_wheel_parts ${plugin})
    install(TARGETS ${plugin} LIBRARY DESTINATION lib COMPONENT wheel)
  endif()
endforeach()
add_dependencies(onebit_wheel_parts onebit_nccl_drop_in)
install(TARGETS onebit_nccl_drop_in LIBRARY DESTINATION lib/onebit/nccl COMPONENT wheel NAMELINK_SKIP)

foreach(tool onebit_info onebit_run sweeps)
  if(TARGET ${tool})
    add_dependencies(onebit_wheel_parts ${tool})
    set_target_properties(${tool} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
    install(TARGETS ${tool} RUNTIME DESTINATION bin COMPONENT wheel)
  endif()
endforeach()
