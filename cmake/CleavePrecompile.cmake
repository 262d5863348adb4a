# Precompiled headers. A header of cmake/pch is compiled once, for all targets
# that name it: what it holds is most of a file's compile time.

# cleave_precompiled_header(NAME): the target cleave-pch-NAME has cmake/pch/NAME.h.
function(cleave_precompiled_header name)
  set(folder ${CMAKE_SOURCE_DIR}/cmake/pch)
  add_library(cleave-pch-${name} OBJECT ${folder}/empty.cpp)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    return() # see below
  endif()
  target_precompile_headers(cleave-pch-${name} PRIVATE ${folder}/${name}.h)
  # Without a time stamp in it, ccache can tell that nothing changed.
  target_compile_options(cleave-pch-${name} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
endfunction()

# cleave_precompile(target NAME): the target uses that header. It must be compiled
# with the same flags, but for definitions of its own.
function(cleave_precompile target name)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    return() # a machine that builds for its device alone may have another
  endif()
  # CMake compiles executables with -fPIE, headers and libraries with -fPIC.
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${target} REUSE_FROM cleave-pch-${name})
endfunction()
