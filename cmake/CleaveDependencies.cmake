# Everything comes from Debian's packages; see the README for the one apt line.
find_package(Threads REQUIRED)
if(CLEAVE_DEVICE_ONLY)
  return()
endif()
find_package(dnnl REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(GTest REQUIRED)

if(CLEAVE_RUNTIME_ONLY)
  return()
endif()

# find_package(MLIR 22) fails on the version check of Debian's package, so ask
# llvm-config for the prefix and check the version afterwards.
find_program(LLVM_CONFIG NAMES llvm-config-22 llvm-config REQUIRED)
execute_process(COMMAND ${LLVM_CONFIG} --prefix
                OUTPUT_VARIABLE CLEAVE_LLVM_PREFIX
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
find_package(MLIR REQUIRED CONFIG HINTS ${CLEAVE_LLVM_PREFIX})
find_package(LLVM REQUIRED CONFIG HINTS ${CLEAVE_LLVM_PREFIX})
if(NOT LLVM_VERSION_MAJOR EQUAL 22)
  message(FATAL_ERROR "cleave needs LLVM 22, found ${LLVM_VERSION} in ${CLEAVE_LLVM_PREFIX}")
endif()
find_package(Protobuf REQUIRED)
find_program(CLEAVE_LIT NAMES lit HINTS ${CLEAVE_LLVM_PREFIX}/bin REQUIRED)

list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
include(TableGen)
include(AddLLVM)
include(AddMLIR)
