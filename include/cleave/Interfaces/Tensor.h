// The interpreter's tensors: doubles or 64-bit integers, in row-major order.

#ifndef CLEAVE_INTERFACES_TENSOR_H
#define CLEAVE_INTERFACES_TENSOR_H

#include "mlir/IR/BuiltinTypes.h"

#include <vector>

namespace cleave {

/// A tensor of any element type. Floats of every type are stored as double,
/// integers and booleans as int64_t.
struct Tensor {
  mlir::RankedTensorType type;
  std::vector<double> floats;
  std::vector<int64_t> ints;

  Tensor() = default;
  /// Creates a tensor of zeros of `type`.
  explicit Tensor(mlir::RankedTensorType type) : type(type) {
    if (isFloat())
      floats.resize(type.getNumElements());
    else
      ints.resize(type.getNumElements());
  }

  bool isFloat() const {
    return llvm::isa<mlir::FloatType>(type.getElementType());
  }
  int64_t size() const { return type.getNumElements(); }
  llvm::ArrayRef<int64_t> shape() const { return type.getShape(); }
  int64_t rank() const { return type.getRank(); }
};

/// Converts the value to the integer type `type`: i1 keeps the lowest bit (0 or
/// 1), other types wrap around as signed integers.
inline int64_t wrapInteger(mlir::Type type, int64_t value) {
  unsigned width = llvm::cast<mlir::IntegerType>(type).getWidth();
  if (width == 1)
    return value & 1;
  return width < 64 ? llvm::SignExtend64(static_cast<uint64_t>(value), width)
                    : value;
}

/// Returns a + b in the integer type `type`, with wraparound on overflow, which
/// C++ leaves undefined for signed integers.
inline int64_t addIntegers(mlir::Type type, int64_t a, int64_t b) {
  return wrapInteger(type, static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

} // namespace cleave

#endif
