// Compiles kernels to machine code with LLVM's optimizer and code generator,
// then links them with lld.

#include "cleave/Codegen/Codegen.h"
#include "cleave/Codegen/Optimize.h"
#include "cleave/Fusion/Fusion.h"
#include "cleave/io/Temporary.h"
#include "cleave/io/WriteError.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/SmallVectorMemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/ThreadPool.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/SubtargetFeature.h"

#include <mutex>
#include <unistd.h>

using namespace mlir;
using namespace cleave;
using namespace cleave::codegen;

/// The number of kernels in an object file. It is small, so that several
/// threads can compile a module's kernels, and fixed, so that the bytes of the
/// shared library do not depend on the number of threads.
static constexpr size_t kKernelsPerObject = 6;

CodegenOptions cleave::codegen::resolveOptions(CodegenOptions options) {
  llvm::StringMap<bool> host = llvm::sys::getHostCPUFeatures();
  if (options.cpu.empty()) {
    options.cpu = llvm::sys::getHostCPUName().str();
    if (options.features.empty()) {
      SmallVector<StringRef> names;
      for (const auto &entry : host)
        names.push_back(entry.getKey());
      llvm::sort(names);
      llvm::SubtargetFeatures features;
      for (StringRef name : names)
        features.AddFeature(name, host[name]);
      options.features = features.getString();
    }
  }
  if (options.vectorBits == 0) {
    StringRef features = options.features;
    options.vectorBits = features.contains("+avx512f") ? 512
                         : features.contains("+avx")   ? 256
                                                       : 128;
  }
  return options;
}

namespace {

/// Compiles LLVM modules with one set of options.
class Backend {
public:
  explicit Backend(const CodegenOptions &options) : options(options) {
    static std::once_flag once;
    std::call_once(once, [] {
      llvm::InitializeNativeTarget();
      llvm::InitializeNativeTargetAsmPrinter();
    });
    triple = llvm::Triple(llvm::sys::getProcessTriple());
    target = llvm::TargetRegistry::lookupTarget(triple, error);
  }

  bool good() const { return target; }

  /// Compiles the module to an object file. Returns an error message, or "" on
  /// success.
  std::string compile(llvm::Module &module, SmallVectorImpl<char> &object) {
    llvm::TargetOptions targetOptions;
    targetOptions.AllowFPOpFusion = llvm::FPOpFusion::Fast;
    std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(
        triple, options.cpu, options.features, targetOptions, llvm::Reloc::PIC_,
        std::nullopt, static_cast<llvm::CodeGenOptLevel>(options.optLevel)));
    module.setDataLayout(machine->createDataLayout());
    module.setTargetTriple(triple);
    // The object file contains the name of the source file. The name is always
    // the same, so that compiling a model twice gives the same bytes.
    module.setSourceFileName("kernels");
    // Kernels use the full width of vector registers, even if LLVM prefers
    // narrower vectors for the processor.
    for (llvm::Function &function : module) {
      if (function.isDeclaration())
        continue;
      function.addFnAttr("prefer-vector-width",
                         std::to_string(options.vectorBits));
      function.addFnAttr("min-legal-vector-width",
                         std::to_string(options.vectorBits));
      function.addFnAttr(llvm::Attribute::NoUnwind);
    }
    optimizeKernels(module, *machine, options.optLevel);
    llvm::raw_svector_ostream stream(object);
    llvm::legacy::PassManager passes;
    if (machine->addPassesToEmitFile(passes, stream, nullptr,
                                     llvm::CodeGenFileType::ObjectFile))
      return "this processor's back end cannot write object files";
    passes.run(module);
    return "";
  }

  std::string error;

private:
  const CodegenOptions &options;
  llvm::Triple triple;
  const llvm::Target *target = nullptr;
};

} // namespace

/// Returns the linker that was found at configuration time or, if there is
/// none, a linker on the PATH.
static std::string findLinker() {
  if (llvm::sys::fs::can_execute(CLEAVE_LLD))
    return CLEAVE_LLD;
  for (StringRef name : {"ld.lld-22", "ld.lld"})
    if (auto path = llvm::sys::findProgramByName(name))
      return *path;
  return "";
}

static LogicalResult link(ModuleOp module,
                          ArrayRef<SmallVector<char, 0>> objects,
                          StringRef outputPath) {
  std::string linker = findLinker();
  if (linker.empty())
    return module.emitError("cannot link kernels: found no ld.lld in PATH; "
                            "install the package lld-22");
  std::string reason;
  std::unique_ptr<TemporaryPath> folder =
      makeTemporaryFolder("cleave-kernels", reason);
  if (!folder)
    return module.emitError("cannot link kernels: ") << reason;
  // The linker writes through a mapped file, where a full disk causes a signal
  // instead of an error. The copy below reports the error.
  SmallString<128> linked(folder->path());
  llvm::sys::path::append(linked, "linked.so");
  std::vector<std::string> arguments = {
      linker, "-shared",     "--build-id=none", "-O1", "--hash-style=gnu",
      "-z",   "noexecstack", "--discard-all",   "-o",  linked.str().str()};
  for (auto [number, object] : llvm::enumerate(objects)) {
    SmallString<128> path(folder->path());
    llvm::sys::path::append(path, std::to_string(number) + ".o");
    std::error_code error;
    llvm::raw_fd_ostream file(path, error);
    if (!error)
      file.write(object.data(), object.size());
    file.close();
    if (!error)
      error = file.error();
    file.clear_error(); // otherwise its destructor aborts
    if (error)
      return module.emitError() << writeError(path.str().str(), error);
    arguments.push_back(path.str().str());
  }
  SmallVector<StringRef> argv(arguments.begin(), arguments.end());
  SmallString<128> log(folder->path());
  llvm::sys::path::append(log, "log");
  std::string message;
  // A linker that crashes must not leave dumps in the user's folder.
  SmallVector<StringRef> environment = {"LLVM_DISABLE_SYMBOLIZATION=1",
                                        "LLVM_DISABLE_CRASH_REPORT=1"};
  for (char **variable = ::environ; *variable; ++variable)
    environment.push_back(*variable);
  int status = llvm::sys::ExecuteAndWait(
      linker, argv, ArrayRef<StringRef>(environment),
      {StringRef(""), StringRef(log), StringRef(log)}, 0, 0, &message);
  if (status == 0) {
    if (std::error_code error = llvm::sys::fs::copy_file(linked, outputPath))
      return module.emitError() << writeError(outputPath.str(), error);
    return success();
  }
  // If a signal ended the linker, its log only has a stack trace.
  if (status > 0)
    if (auto text = llvm::MemoryBuffer::getFile(log))
      message += (*text)->getBuffer().trim().str();
  if (status < 0 || message.empty())
    return module.emitError("cannot link kernels: ")
           << linker
           << " failed; is the folder for temporary files full? It is "
           << folder->path() << "; set TMPDIR to one with space";
  return module.emitError("cannot link kernels into '")
         << outputPath << "': " << message;
}

/// Distributes the functions of `emitted` over several modules. A constant
/// table (a global) is put into the module of the function that follows it,
/// which reads it. Declarations are copied to all modules.
static SmallVector<OwningOpRef<ModuleOp>> partition(ModuleOp emitted) {
  SmallVector<OwningOpRef<ModuleOp>> parts;
  SmallVector<Operation *> declarations, pending;
  size_t count = 0;
  for (Operation &op :
       llvm::make_early_inc_range(emitted.getBody()->getOperations())) {
    auto function = dyn_cast<LLVM::LLVMFuncOp>(op);
    if (function && function.isExternal()) {
      declarations.push_back(&op);
      continue;
    }
    pending.push_back(&op);
    if (!function)
      continue;
    if (count++ % kKernelsPerObject == 0)
      parts.push_back(ModuleOp::create(emitted.getLoc()));
    for (Operation *moved : pending)
      moved->moveBefore(parts.back()->getBody(),
                        parts.back()->getBody()->end());
    pending.clear();
  }
  for (auto &part : parts)
    for (Operation *declaration : declarations)
      part->push_back(declaration->clone());
  return parts;
}

LogicalResult cleave::codegen::compileKernels(ModuleOp module,
                                              StringRef outputPath,
                                              const CodegenOptions &given) {
  CodegenOptions options = resolveOptions(given);
  Backend backend(options);
  if (!backend.good())
    return module.emitError("no code generator for this machine: ")
           << backend.error;
  auto emitted = emitKernels(module, options);
  if (failed(emitted) || failed(lowerToLLVM(**emitted)))
    return failure();
  registerBuiltinDialectTranslation(*module.getContext());
  registerLLVMDialectTranslation(*module.getContext());

  SmallVector<OwningOpRef<ModuleOp>> parts = partition(**emitted);
  std::vector<SmallVector<char, 0>> objects(parts.size());
  std::vector<std::string> errors(parts.size());
  llvm::DefaultThreadPool pool(llvm::hardware_concurrency(options.threads));
  for (size_t i = 0; i < parts.size(); ++i)
    pool.async([&, i] {
      llvm::LLVMContext context;
      auto llvmModule = translateModuleToLLVMIR(*parts[i], context, "kernels");
      if (!llvmModule)
        errors[i] = "translation to LLVM failed";
      else
        errors[i] = backend.compile(*llvmModule, objects[i]);
    });
  pool.wait();
  for (const std::string &error : errors)
    if (!error.empty())
      return module.emitError("cannot compile kernels: ") << error;
  return link(module, objects, outputPath);
}
