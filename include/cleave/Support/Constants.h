// Constants whose elements are all equal.

#ifndef CLEAVE_SUPPORT_CONSTANTS_H
#define CLEAVE_SUPPORT_CONSTANTS_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/Value.h"

namespace cleave {

/// Returns the element of a scalar constant, or the common element of a
/// constant whose elements are all equal. Returns null for other values, and if
/// `value` is null.
inline mlir::Attribute splatElementOf(mlir::Value value) {
  mlir::DenseElementsAttr dense;
  if (!value || !mlir::matchPattern(value, mlir::m_Constant(&dense)) ||
      !dense.isSplat())
    return {};
  return dense.getSplatValue<mlir::Attribute>();
}

} // namespace cleave

#endif // CLEAVE_SUPPORT_CONSTANTS_H
