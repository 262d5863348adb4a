// Collects changes of the attributes of a function's arguments and results, and
// sets all attributes at once. Setting them one by one with `setArgAttr` would
// take quadratic time, since each call copies the attributes of all arguments.

#ifndef CLEAVE_INTERFACES_BOUNDARYATTRS_H
#define CLEAVE_INTERFACES_BOUNDARYATTRS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave {

class BoundaryAttrs {
public:
  explicit BoundaryAttrs(mlir::func::FuncOp func) : func(func) {
    func.getAllArgAttrs(arguments);
    func.getAllResultAttrs(results);
  }
  void setArgument(unsigned index, llvm::StringRef name,
                   mlir::Attribute value) {
    set(arguments[index], name, value);
  }
  void setResult(unsigned index, llvm::StringRef name, mlir::Attribute value) {
    set(results[index], name, value);
  }
  /// Writes the collected attributes to the function.
  void apply() {
    func.setAllArgAttrs(arguments);
    func.setAllResultAttrs(results);
  }

private:
  void set(mlir::DictionaryAttr &attrs, llvm::StringRef name,
           mlir::Attribute value) {
    mlir::NamedAttrList list(attrs);
    list.set(name, value);
    attrs = list.getDictionary(func.getContext());
  }

  mlir::func::FuncOp func;
  llvm::SmallVector<mlir::DictionaryAttr> arguments, results;
};

} // namespace cleave

#endif
