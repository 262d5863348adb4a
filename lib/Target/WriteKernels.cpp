// Writes the kernels of a program as files.

#include "cleave/Codegen/Codegen.h"
#include "cleave/Codegen/GPU/GPU.h"
#include "cleave/Target/Target.h"

#include "llvm/Support/Path.h"

#include <cstdlib>

using namespace mlir;
using namespace cleave;

bool target::wantsHostKernels() {
  const char *value = std::getenv("CLEAVE_HOST_KERNELS");
  return value && StringRef(value) == "1";
}

FailureOr<std::vector<std::string>>
target::writeKernels(ModuleOp module, const program::Program &program,
                     const KernelOptions &options, StringRef folder) {
  std::vector<std::string> files;
  if (program.kernels.empty())
    return files;
  bool isCuda = program.device == program::Device::Cuda;
  if (isCuda) {
    auto written =
        codegen::compileGpuKernels(module, options.architectures, folder);
    if (failed(written))
      return failure();
    files = std::move(*written);
  }
  if (!isCuda || wantsHostKernels()) {
    files.push_back("kernels.so");
    SmallString<128> path(folder);
    llvm::sys::path::append(path, files.back());
    codegen::CodegenOptions codegen;
    codegen.optLevel = options.optLevel;
    if (failed(codegen::compileKernels(module, path, codegen)))
      return failure();
  }
  return files;
}
