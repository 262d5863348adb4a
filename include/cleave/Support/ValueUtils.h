// Accessors of values and attributes that all passes use.

#ifndef CLEAVE_SUPPORT_VALUEUTILS_H
#define CLEAVE_SUPPORT_VALUEUTILS_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Value.h"

namespace cleave {

/// Returns the type of a value, which must be a ranked tensor.
inline mlir::RankedTensorType typeOf(mlir::Value value) {
  return llvm::cast<mlir::RankedTensorType>(value.getType());
}

/// Returns the shape of a value that is a ranked tensor.
inline llvm::ArrayRef<int64_t> shapeOf(mlir::Value value) {
  return typeOf(value).getShape();
}

/// Returns the string attribute `key` of `attrs`, which may be null; empty if
/// there is none.
inline llvm::StringRef textOf(mlir::DictionaryAttr attrs, llvm::StringRef key) {
  auto value = attrs ? attrs.getAs<mlir::StringAttr>(key) : mlir::StringAttr();
  return value ? value.getValue() : llvm::StringRef();
}

} // namespace cleave

#endif
