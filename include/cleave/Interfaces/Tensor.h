// The interpreter's tensors: doubles, or 64-bit integers, in row-major order.

#ifndef CLEAVE_INTERFACES_TENSOR_H
#define CLEAVE_INTERFACES_TENSOR_H

#include "mlir/IR/BuiltinTypes.h"

#include <vector>

namespace cleave {

/// A tensor of any element type; floats are held as double, whatever their
/// type says, integers and booleans as int64_t.
struct Tensor {
  mlir::RankedTensorType type;
  std::vector<double> floats;
  std::vector<int64_t> ints;

  Tensor() = default;
  /// Zeros of `type`.
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

} // namespace cleave

#endif
