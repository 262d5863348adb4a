// PTX: LLVM's optimiser and code generator, then the toolkit's assembler.

#include "DeviceLibrary.h"
#include "cleave/Codegen/GPU.h"
#include "cleave/Codegen/Optimize.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

#include <cstdlib>
#include <mutex>

using namespace mlir;
using namespace cleave;

/// The version of PTX that knows a processor.
static StringRef featuresOf(StringRef arch) {
  return llvm::StringSwitch<StringRef>(arch)
      .Cases({"sm_100", "sm_100a", "sm_120"}, "+ptx86")
      .Default("+ptx80");
}

static std::unique_ptr<llvm::TargetMachine> machineOf(StringRef arch,
                                                      std::string &error) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
  llvm::Triple triple("nvptx64-nvidia-cuda");
  const llvm::Target *target =
      llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  llvm::TargetOptions options;
  // Every operation rounds, so that results do not depend on what a compiler
  // contracts; formulas ask for fused operations where they want them.
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(
      triple, arch, featuresOf(arch), options, std::nullopt, std::nullopt,
      llvm::CodeGenOptLevel::Aggressive));
  if (machine && !machine->getMCSubtargetInfo()->isCPUStringValid(arch)) {
    error =
        "no processor '" + arch.str() + "'; sm_80, sm_90 and sm_100 are some";
    return nullptr;
  }
  return machine;
}

FailureOr<std::string> cleave::codegen::compileToPtx(ModuleOp kernels,
                                                     StringRef arch) {
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine = machineOf(arch, error);
  if (!machine)
    return kernels.emitError("cannot compile kernels for GPUs: ") << error;
  if (failed(lowerToNVVM(kernels)))
    return failure();
  registerBuiltinDialectTranslation(*kernels.getContext());
  registerGPUDialectTranslation(*kernels.getContext());
  registerLLVMDialectTranslation(*kernels.getContext());
  registerNVVMDialectTranslation(*kernels.getContext());

  auto gpuModules = kernels.getOps<gpu::GPUModuleOp>();
  if (gpuModules.empty())
    return kernels.emitError("cannot compile kernels for GPUs: there is no "
                             "'gpu.module'");
  gpu::GPUModuleOp gpuModule = *gpuModules.begin();
  llvm::LLVMContext context;
  auto module = translateModuleToLLVMIR(gpuModule, context, kGpuModule);
  if (!module)
    return failure();
  module->setDataLayout(machine->createDataLayout());
  module->setTargetTriple(machine->getTargetTriple());
  error = linkDeviceLibrary(*module);
  if (!error.empty())
    return kernels.emitError("cannot compile kernels for GPUs: ") << error;
  codegen::optimizeKernels(*module, *machine, /*level=*/3);

  SmallVector<char, 0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, stream, nullptr,
                                   llvm::CodeGenFileType::AssemblyFile))
    return kernels.emitError("cannot compile kernels for GPUs: no PTX");
  passes.run(*module);
  return std::string(text.begin(), text.end());
}

std::optional<std::string> cleave::codegen::findPtxas() {
  if (const char *home = std::getenv("CUDA_HOME")) {
    std::string path = std::string(home) + "/bin/ptxas";
    if (llvm::sys::fs::can_execute(path))
      return path;
  }
  if (auto path = llvm::sys::findProgramByName("ptxas"))
    return *path;
  if (llvm::sys::fs::can_execute(CLEAVE_PTXAS))
    return std::string(CLEAVE_PTXAS);
  return std::nullopt;
}

LogicalResult cleave::codegen::assemblePtx(StringRef ptx, StringRef arch,
                                           StringRef cubinPath, Location loc) {
  std::optional<std::string> ptxas = findPtxas();
  if (!ptxas)
    return emitError(loc,
                     "cannot assemble kernels: no ptxas below CUDA_HOME or "
                     "on the PATH; install the CUDA toolkit");
  SmallString<128> source, log;
  int file = 0;
  std::error_code failed =
      llvm::sys::fs::createTemporaryFile("cleave-kernels", "ptx", file, source);
  if (!failed) {
    llvm::raw_fd_ostream stream(file, /*shouldClose=*/true);
    stream << ptx;
    stream.close();
    failed = stream.error();
    stream.clear_error(); // else its destructor ends the process
  }
  if (!failed)
    failed = llvm::sys::fs::createTemporaryFile("cleave-kernels", "log", log);
  if (failed)
    return emitError(loc, "cannot assemble kernels: no temporary file: ")
           << failed.message();
  std::string message, target = ("-arch=" + arch).str();
  int status = llvm::sys::ExecuteAndWait(
      *ptxas, {*ptxas, target, "-o", cubinPath, source}, std::nullopt,
      {StringRef(""), StringRef(log), StringRef(log)}, 0, 0, &message);
  if (status != 0)
    if (auto text = llvm::MemoryBuffer::getFile(log))
      message += (*text)->getBuffer().trim().str();
  llvm::sys::fs::remove(source);
  llvm::sys::fs::remove(log);
  if (status != 0)
    return emitError(loc, "cannot assemble kernels: ")
           << *ptxas << ": " << message;
  return success();
}
