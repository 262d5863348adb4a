// Helpers of the evaluation files: attaching a function as an external model,
// and iterating over index spaces.

#ifndef CLEAVE_LIB_INTERFACES_EVALUATE_MODEL_H
#define CLEAVE_LIB_INTERFACES_EVALUATE_MODEL_H

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/Interfaces.h"

#include <array>
#include <cmath>

namespace cleave::evaluate {

using Operands = llvm::ArrayRef<const Tensor *>;
using Results = llvm::MutableArrayRef<Tensor>;
using Index = llvm::SmallVector<int64_t, 6>;

/// Implements EvaluableInterface for `Op` by a function.
template <typename Op, void (*Rule)(Op, Operands, Results)>
struct Model : EvaluableInterface::ExternalModel<Model<Op, Rule>, Op> {
  mlir::LogicalResult evaluate(mlir::Operation *op, Operands operands,
                               Results results) const {
    Rule(mlir::cast<Op>(op), operands, results);
    return mlir::success();
  }
};

template <typename Op, void (*Rule)(Op, Operands, Results)>
void attach(mlir::MLIRContext *context) {
  Op::template attachInterface<Model<Op, Rule>>(*context);
}

/// Calls `visit(index, flat)` for every index of `shape` in row-major order.
template <typename Visit>
void forEachIndex(llvm::ArrayRef<int64_t> shape, Visit visit) {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  Index index(shape.size(), 0);
  for (int64_t flat = 0; flat < count; ++flat) {
    visit(llvm::ArrayRef<int64_t>(index), flat);
    for (int64_t dim = shape.size() - 1; dim >= 0; --dim) {
      if (++index[dim] < shape[dim])
        break;
      index[dim] = 0;
    }
  }
}

/// Whether `a` is larger than `b`; NaN is larger than all numbers.
inline bool isLarger(double a, double b) {
  return a > b || (std::isnan(a) && !std::isnan(b));
}

/// Row-major position of `index` in `shape`.
inline int64_t flatten(llvm::ArrayRef<int64_t> shape,
                       llvm::ArrayRef<int64_t> index) {
  int64_t flat = 0;
  for (auto [size, i] : llvm::zip(shape, index))
    flat = flat * size + i;
  return flat;
}

/// Copies element `from` of `source` to element `to` of `target`; both must
/// have floats or both integers.
inline void copyElement(Tensor &target, int64_t to, const Tensor &source,
                        int64_t from) {
  if (source.isFloat())
    target.floats[to] = source.floats[from];
  else
    target.ints[to] = source.ints[from];
}

/// Philox-4x32-10 (Salmon et al., 2011): returns a block of four words.
std::array<uint32_t, 4> philox(uint64_t key, std::array<uint32_t, 4> counter);

void attachElementwise(mlir::MLIRContext *context);
void attachShape(mlir::MLIRContext *context);
void attachConvolution(mlir::MLIRContext *context);
void attachContraction(mlir::MLIRContext *context);
void attachRows(mlir::MLIRContext *context);
void attachAttention(mlir::MLIRContext *context);
void attachExperts(mlir::MLIRContext *context);
void attachTraining(mlir::MLIRContext *context);
void attachPipe(mlir::MLIRContext *context);

} // namespace cleave::evaluate

#endif
