// Compiles GPU kernels to PTX with LLVM's optimizer and code generator.

#include "DeviceLibrary.h"
#include "cleave/Codegen/GPU/GPU.h"
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
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/ThreadPool.h"
#include "llvm/Target/TargetMachine.h"

#include <mutex>

using namespace mlir;
using namespace cleave;

/// Returns the PTX version that supports an architecture.
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
  // LLVM must not contract multiplications and additions to fused
  // multiply-adds: every operation must round; formulas use fused multiply-add
  // explicitly.
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

/// Sets the alignment of every global. Without it, LLVM's optimizer assumes 16
/// bytes for large globals and widens loads, but the PTX only guarantees the
/// alignment of one element.
static void alignGlobals(llvm::Module &module) {
  for (llvm::GlobalVariable &global : module.globals())
    if (!global.getAlign() && !global.isDeclaration())
      global.setAlignment(module.getDataLayout().getPreferredAlign(&global));
}

/// Translates a lowered module to PTX. Returns an error message, or "" on
/// success.
static std::string compile(ModuleOp lowered, StringRef arch, std::string &ptx) {
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine = machineOf(arch, error);
  if (!machine)
    return error;
  gpu::GPUModuleOp gpuModule = *lowered.getOps<gpu::GPUModuleOp>().begin();
  llvm::LLVMContext context;
  auto module =
      translateModuleToLLVMIR(gpuModule, context, codegen::kGpuModule);
  if (!module)
    return "translation to LLVM failed";
  module->setDataLayout(machine->createDataLayout());
  module->setTargetTriple(machine->getTargetTriple());
  error = codegen::linkDeviceLibrary(*module);
  if (!error.empty())
    return error;
  codegen::optimizeKernels(*module, *machine, /*level=*/3);
  alignGlobals(*module);

  SmallVector<char, 0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, stream, nullptr,
                                   llvm::CodeGenFileType::AssemblyFile))
    return "no PTX";
  passes.run(*module);
  ptx.assign(text.begin(), text.end());
  return "";
}

FailureOr<std::vector<std::string>>
cleave::codegen::compileAllToPtx(ModuleOp kernels,
                                 ArrayRef<std::string> archs) {
  for (const std::string &arch : archs)
    if (std::string error; !machineOf(arch, error))
      return kernels.emitError("cannot compile kernels for GPUs: ") << error;
  if (failed(lowerToNVVM(kernels)))
    return failure();
  if (kernels.getOps<gpu::GPUModuleOp>().empty())
    return kernels.emitError("cannot compile kernels for GPUs: there is no "
                             "'gpu.module'");
  registerBuiltinDialectTranslation(*kernels.getContext());
  registerGPUDialectTranslation(*kernels.getContext());
  registerLLVMDialectTranslation(*kernels.getContext());
  registerNVVMDialectTranslation(*kernels.getContext());
  // Translation modifies the module, so each architecture gets a copy.
  SmallVector<OwningOpRef<ModuleOp>> copies;
  for (size_t i = 0; i < archs.size(); ++i)
    copies.push_back(cast<ModuleOp>(kernels->clone()));
  std::vector<std::string> texts(archs.size()), errors(archs.size());
  llvm::DefaultThreadPool pool(llvm::hardware_concurrency(archs.size()));
  for (size_t i = 0; i < archs.size(); ++i)
    pool.async([&, i] { errors[i] = compile(*copies[i], archs[i], texts[i]); });
  pool.wait();
  for (const std::string &error : errors)
    if (!error.empty())
      return kernels.emitError("cannot compile kernels for GPUs: ") << error;
  return texts;
}

FailureOr<std::string> cleave::codegen::compileToPtx(ModuleOp kernels,
                                                     StringRef arch) {
  auto texts = compileAllToPtx(kernels, ArrayRef<std::string>(arch.str()));
  if (failed(texts))
    return failure();
  return std::move(texts->front());
}
