#include "DeviceLibrary.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/IR/Module.h"
#include "llvm/IRReader/IRReader.h"
#include "llvm/Linker/Linker.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/SourceMgr.h"

#include <cstdlib>

using namespace mlir;
using namespace cleave;

static constexpr llvm::StringLiteral kPrefix = "__nv_";

/// Returns the libdevice function of an operation; empty if the hardware has an
/// instruction for it.
static StringRef nameOf(Operation *op) {
  return llvm::StringSwitch<StringRef>(op->getName().getStringRef())
      .Case("math.acos", "acos")
      .Case("math.acosh", "acosh")
      .Case("math.asin", "asin")
      .Case("math.asinh", "asinh")
      .Case("math.atan", "atan")
      .Case("math.atan2", "atan2")
      .Case("math.atanh", "atanh")
      .Case("math.cbrt", "cbrt")
      .Case("math.cos", "cos")
      .Case("math.cosh", "cosh")
      .Case("math.erf", "erf")
      .Case("math.erfc", "erfc")
      .Case("math.exp", "exp")
      .Case("math.exp2", "exp2")
      .Case("math.expm1", "expm1")
      .Case("math.log", "log")
      .Case("math.log10", "log10")
      .Case("math.log1p", "log1p")
      .Case("math.log2", "log2")
      .Case("math.powf", "pow")
      .Case("math.sin", "sin")
      .Case("math.sinh", "sinh")
      .Case("math.tan", "tan")
      .Case("math.tanh", "tanh")
      .Case("arith.remf", "fmod")
      .Default("");
}

static LLVM::LLVMFuncOp declare(Operation *op, StringRef name, Type type) {
  auto module = op->getParentOfType<gpu::GPUModuleOp>();
  if (auto found = module.lookupSymbol<LLVM::LLVMFuncOp>(name))
    return found;
  auto b = OpBuilder::atBlockBegin(module.getBody());
  SmallVector<Type> arguments(op->getNumOperands(), type);
  return LLVM::LLVMFuncOp::create(b, op->getLoc(), name,
                                  LLVM::LLVMFunctionType::get(type, arguments));
}

void codegen::callDeviceLibrary(ModuleOp kernels) {
  SmallVector<Operation *> calls;
  kernels.walk([&](Operation *op) {
    if (op->getNumResults() == 1 && !nameOf(op).empty() &&
        isa<Float32Type, Float64Type>(
            getElementTypeOrSelf(op->getResult(0).getType())))
      calls.push_back(op);
  });
  for (Operation *op : calls) {
    Type type = op->getResult(0).getType(),
         element = getElementTypeOrSelf(type);
    std::string name = (kPrefix + nameOf(op)).str();
    if (element.isF32())
      name += "f";
    LLVM::LLVMFuncOp function = declare(op, name, element);
    OpBuilder b(op);
    Location loc = op->getLoc();
    Value result;
    if (auto vector = dyn_cast<VectorType>(type)) {
      result = arith::ConstantOp::create(b, loc, b.getZeroAttr(vector));
      for (int64_t i = 0; i < vector.getNumElements(); ++i) {
        SmallVector<Value> operands;
        for (Value operand : op->getOperands())
          operands.push_back(vector::ExtractOp::create(b, loc, operand, i));
        Value one =
            LLVM::CallOp::create(b, loc, function, operands).getResult();
        result = vector::InsertOp::create(b, loc, one, result, i);
      }
    } else {
      result =
          LLVM::CallOp::create(b, loc, function, op->getOperands()).getResult();
    }
    op->getResult(0).replaceAllUsesWith(result);
    op->erase();
  }
}

/// Returns the path of libdevice below CUDA_HOME, or the path found at
/// configuration time.
static std::string findDeviceLibrary() {
  if (const char *home = std::getenv("CUDA_HOME")) {
    if (!*home)
      return "";
    std::string path = std::string(home) + "/nvvm/libdevice/libdevice.10.bc";
    if (llvm::sys::fs::exists(path))
      return path;
  }
  return llvm::sys::fs::exists(CLEAVE_LIBDEVICE) ? CLEAVE_LIBDEVICE : "";
}

std::string codegen::linkDeviceLibrary(llvm::Module &module) {
  std::string wanted;
  for (const llvm::Function &function : module)
    if (function.isDeclaration() && function.getName().starts_with(kPrefix))
      wanted += (wanted.empty() ? "'" : ", '") +
                function.getName().drop_front(kPrefix.size()).str() + "'";
  if (wanted.empty())
    return "";
  std::string path = findDeviceLibrary();
  if (path.empty())
    return "the functions " + wanted +
           " need libdevice.10.bc of the CUDA toolkit, which was not found; "
           "set CUDA_HOME to the toolkit's folder";
  llvm::SMDiagnostic diagnostic;
  auto library = llvm::parseIRFile(path, diagnostic, module.getContext());
  if (!library)
    return "cannot read '" + path + "': " + diagnostic.getMessage().str();
  library->setDataLayout(module.getDataLayout());
  library->setTargetTriple(module.getTargetTriple());
  llvm::StringSet<> own;
  for (const llvm::Function &function : module)
    if (!function.isDeclaration())
      own.insert(function.getName());
  if (llvm::Linker::linkModules(module, std::move(library),
                                llvm::Linker::LinkOnlyNeeded))
    return "cannot link '" + path + "'";
  for (llvm::Function &function : module)
    if (!function.isDeclaration() && !own.contains(function.getName()))
      function.setLinkage(llvm::GlobalValue::InternalLinkage);
  // As on CPUs, subnormal numbers are not flushed to zero.
  module.addModuleFlag(llvm::Module::Override, "nvvm-reflect-ftz", uint32_t(0));
  return "";
}
