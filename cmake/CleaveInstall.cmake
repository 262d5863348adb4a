# cmake --install: tools, libcleave-compiler.so with its headers, the wire of
# MPI, completions, and a package for find_package(cleave). cpack writes the
# same, without headers of tests, as a .tar.zst.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The tools find the library, and cleave finds cleave-run, beside themselves
# wherever the folder is; LLVM's libraries are where Debian's packages put
# them.
set(tools cleave-run)
if(NOT CLEAVE_RUNTIME_ONLY)
  list(APPEND tools cleave cleave-opt cleave-reduce cleave-lsp-server)
endif()
set_target_properties(${tools} PROPERTIES
  INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};${CLEAVE_LLVM_PREFIX}/lib")
install(TARGETS ${tools} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET cleave-mpi)
  install(TARGETS cleave-mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(CLEAVE_RUNTIME_ONLY)
  return()
endif()

set_target_properties(cleave-compiler PROPERTIES INSTALL_RPATH "${CLEAVE_LLVM_PREFIX}/lib")
install(TARGETS cleave-compiler EXPORT cleaveTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/cleave ${CMAKE_BINARY_DIR}/include/cleave runtime/include/cleave
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "*.inc" PATTERN "*.td"
        PATTERN "CMakeFiles" EXCLUDE)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/cleave)
install(EXPORT cleaveTargets NAMESPACE cleave:: DESTINATION ${package})
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/cleaveConfig.cmake.in
  ${CMAKE_BINARY_DIR}/cleaveConfig.cmake INSTALL_DESTINATION ${package}
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_BINDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cleaveConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/cleaveConfig.cmake ${CMAKE_BINARY_DIR}/cleaveConfigVersion.cmake
        DESTINATION ${package})

# Completions, as bash and zsh look for them.
install(CODE "
  foreach(shell bash zsh)
    execute_process(COMMAND $<TARGET_FILE:cleave> completion \${shell}
                    OUTPUT_FILE ${CMAKE_BINARY_DIR}/completion.\${shell} COMMAND_ERROR_IS_FATAL ANY)
  endforeach()")
install(FILES ${CMAKE_BINARY_DIR}/completion.bash
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME cleave)
install(FILES ${CMAKE_BINARY_DIR}/completion.zsh
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _cleave)

set(CPACK_GENERATOR TZST)
set(CPACK_PACKAGE_VENDOR "the cleave developers")
set(CPACK_PACKAGE_FILE_NAME "cleave-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR}-linux")
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
include(CPack)
