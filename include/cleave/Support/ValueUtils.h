// What passes ask of values and attributes everywhere.

#ifndef CLEAVE_SUPPORT_VALUEUTILS_H
#define CLEAVE_SUPPORT_VALUEUTILS_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Value.h"

namespace cleave {

/// The type of a value that is a ranked tensor, as nearly all are.
inline mlir::RankedTensorType typeOf(mlir::Value value) {
  return llvm::cast<mlir::RankedTensorType>(value.getType());
}

/// Its sizes.
inline llvm::ArrayRef<int64_t> shapeOf(mlir::Value value) {
  return typeOf(value).getShape();
}

/// The string of that name among attributes, which may be null; empty where
/// there is none.
inline llvm::StringRef textOf(mlir::DictionaryAttr attrs, llvm::StringRef key) {
  auto value = attrs ? attrs.getAs<mlir::StringAttr>(key) : mlir::StringAttr();
  return value ? value.getValue() : llvm::StringRef();
}

} // namespace cleave

#endif
