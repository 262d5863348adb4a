// nn-dedupe-kernels: merges kernels with equal code into one function.

#include "cleave/Fusion/Fusion.h"
#include "cleave/Fusion/Passes.h"

#include "mlir/IR/OperationSupport.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/StringMap.h"

namespace cleave {
#define GEN_PASS_DEF_DEDUPEKERNELSPASS
#include "cleave/Fusion/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;

namespace {

/// Returns a text that determines the generated code: the function without its
/// name and locations.
std::string fingerprint(func::FuncOp kernel) {
  std::string text;
  llvm::raw_string_ostream os(text);
  kernel.getFunctionType().print(os);
  llvm::DenseMap<Value, int> numbers;
  for (Value argument : kernel.getArguments())
    numbers[argument] = numbers.size();
  for (Operation &op : kernel.front()) {
    os << "\n" << op.getName() << " " << op.getAttrDictionary();
    for (Value operand : op.getOperands())
      os << " " << numbers.lookup(operand);
    for (Value result : op.getResults()) {
      os << " " << result.getType();
      numbers[result] = numbers.size();
    }
  }
  return text;
}

/// Returns a kernel's name without its number: `add_gelu` for `add_gelu_17`.
StringRef stem(StringRef name) {
  StringRef front = name.rtrim("0123456789");
  if (front.size() < name.size() && front.ends_with("_"))
    return front.drop_back();
  return name;
}

struct DedupeKernelsPass
    : cleave::impl::DedupeKernelsPassBase<DedupeKernelsPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<func::FuncOp> unique;
    llvm::StringMap<func::FuncOp> byContent;
    llvm::DenseMap<StringAttr, func::FuncOp> survivors;
    for (auto kernel :
         llvm::make_early_inc_range(module.getOps<func::FuncOp>())) {
      if (!kernel->hasAttr(kernels::kKernelAttr) || kernel.isExternal())
        continue;
      auto [entry, isNew] = byContent.try_emplace(fingerprint(kernel), kernel);
      if (isNew)
        unique.push_back(kernel);
      survivors[kernel.getNameAttr()] = entry->second;
    }
    module.walk([&](func::CallOp call) {
      if (func::FuncOp target =
              survivors.lookup(call.getCalleeAttr().getAttr()))
        call.setCallee(target.getName());
    });
    llvm::DenseSet<Operation *> kept(unique.begin(), unique.end());
    for (auto kernel :
         llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
      if (kernel->hasAttr(kernels::kKernelAttr) && !kernel.isExternal() &&
          !kept.contains(kernel))
        kernel.erase();
    renumber(module, unique);
  }

  /// Gives the kernels new numbers. Calls are renamed only after all kernels,
  /// by a map from old to new names, because a new name may be the old name of
  /// a different kernel.
  void renumber(ModuleOp module, ArrayRef<func::FuncOp> unique) {
    llvm::DenseMap<StringAttr, StringAttr> renamed;
    llvm::StringMap<bool> taken;
    for (Operation &op : module.getOps())
      if (auto symbol = dyn_cast<SymbolOpInterface>(op);
          symbol && !op.hasAttr(kernels::kKernelAttr))
        taken[symbol.getName()] = true;
    int64_t number = 0;
    for (func::FuncOp kernel : unique) {
      std::string name;
      do
        name = (stem(kernel.getName()) + "_" + Twine(number++)).str();
      while (taken.contains(name));
      renamed[kernel.getNameAttr()] = StringAttr::get(&getContext(), name);
    }
    for (func::FuncOp kernel : unique)
      kernel.setSymNameAttr(renamed.lookup(kernel.getNameAttr()));
    module.walk([&](func::CallOp call) {
      if (StringAttr name = renamed.lookup(call.getCalleeAttr().getAttr()))
        call.setCallee(name);
    });
  }
};

} // namespace
