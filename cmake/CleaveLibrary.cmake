# cleave_add_library(name SOURCES... DEPENDS tablegen-targets LINK libraries)
#
# One library per folder. LLVM is linked shared, once, and never mixed with the
# static archives. Exceptions are off, as in LLVM; a library that needs
# exceptions (Config) says EXCEPTIONS.
function(cleave_add_library name)
  cmake_parse_arguments(ARG "EXCEPTIONS" "" "DEPENDS;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  cleave_llvm_target(${name} ${ARG_EXCEPTIONS})
  if(NOT ARG_EXCEPTIONS)
    target_precompile_headers(${name} REUSE_FROM cleave-pch)
  endif()
  target_link_libraries(${name} PUBLIC ${ARG_LINK})
  add_dependencies(${name} cleave-headers)
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
endfunction()

# Includes and flags for a target that uses LLVM and MLIR headers.
function(cleave_llvm_target name)
  target_include_directories(${name} SYSTEM PUBLIC ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/include ${CMAKE_BINARY_DIR}/include
                                            ${CMAKE_SOURCE_DIR}/runtime/include)
  target_compile_definitions(${name} PUBLIC __STDC_CONSTANT_MACROS __STDC_FORMAT_MACROS
                                            __STDC_LIMIT_MACROS _GNU_SOURCE)
  if("TRUE" IN_LIST ARGN)
    target_compile_options(${name} PRIVATE -fexceptions)
  else()
    target_compile_options(${name} PRIVATE -fno-exceptions)
  endif()
  target_link_libraries(${name} PUBLIC MLIR LLVM)
endfunction()

# One precompiled header for all libraries. Without a time stamp in it, ccache
# can tell that nothing changed.
add_library(cleave-pch OBJECT ${CMAKE_SOURCE_DIR}/cmake/CleavePch.cpp)
cleave_llvm_target(cleave-pch FALSE)
target_precompile_headers(cleave-pch PRIVATE ${CMAKE_SOURCE_DIR}/cmake/CleavePch.h)
target_compile_options(cleave-pch PUBLIC "SHELL:-Xclang -fno-pch-timestamp")
