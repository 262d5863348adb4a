// Finds shapes for all values of a function with which reshapes disappear.
//
// Dimensions of different values that must be the same dimension (operand and
// result of an addition, the places of a letter in an einsum, ...) form a
// class. A reshape [10, 12] -> [2, 5, 3, 4] cuts dimensions: 10 into 2 x 5, and
// 12 into 3 x 4. A cut holds for all dimensions of the class, and so may cut
// operands of other reshapes, until nothing changes. Then each value has a
// factored shape, and a reshape is the identity if its operand and its result
// have the same factored shape. Dimensions that an operation needs whole (rows
// of a norm, the sequence of attention) are atomic. If the cuts of a reshape
// would contradict others, or cut an atomic class, the reshape remains.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_FACTORDIMENSIONS_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_FACTORDIMENSIONS_H

#include "Dataflow.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <set>

namespace cleave::nn {

class FactorAnalysis {
public:
  /// With `views`, a parameter's dimension is also cut into equal parts if the
  /// function reads only slices of that size. An example is a parameter that
  /// stores two matrices as one.
  FactorAnalysis(mlir::func::FuncOp function, bool views);

  /// The factors of a dimension, major to minor; empty for size 1.
  Dims factors(mlir::Value value, int64_t dim) const;
  /// The factors of all dimensions of a value, in order.
  Dims shape(mlir::Value value) const;
  /// Whether the shape of any value changes.
  bool changes() const { return anyChange; }

private:
  struct Class {
    int64_t size = 1;
    bool atomic = false;
    /// The cuts of the class. Each cut is given as the number of elements that
    /// the factors minor to it have together. Each of these numbers divides the
    /// next one, and all divide the size.
    std::set<int64_t> cuts;
  };
  /// Consecutive dimensions of a reshape's operand and of its result with the
  /// same number of elements in total.
  struct Group {
    llvm::SmallVector<std::pair<int, int64_t>, 4> parts; // (node, stride)
    int64_t size = 1;
  };
  /// A slice of one dimension, whose offset and size are multiples of `grain`.
  struct Cut {
    int input, output;
    int64_t grain, offset;
  };

  int node(mlir::Value value, int64_t dim);
  int find(int node) const;
  void unite(mlir::Value a, int64_t dimA, mlir::Value b, int64_t dimB);
  void uniteAll(mlir::Value a, mlir::Value b);
  void makeAtomic(mlir::Value value, int64_t dim);
  void makeAtomic(mlir::Value value);

  void visit(mlir::Operation *op);
  void visitEinsum(EinsumOp op);
  void visitReshape(ReshapeOp op);
  void visitSlice(SliceOp op);
  bool propagate(const Group &group);
  bool propagate(const Cut &cut);
  void propagateAll();
  void cutEqualSlices(mlir::func::FuncOp function);
  bool addCuts(llvm::ArrayRef<std::pair<int, int64_t>> cuts);

  llvm::DenseMap<mlir::Value, int> firstNode;
  mutable llvm::SmallVector<int> parent;
  llvm::SmallVector<Class> classes;
  llvm::SmallVector<Group> groups;
  llvm::SmallVector<Cut> slices;
  bool anyChange = false;
};

/// Rewrites a function to its factored shapes. With `views`, parameters and
/// constants of the file get their factored shape as well. Otherwise they keep
/// their shape, as inputs and results do, and are reshaped where they are used.
void factorDimensions(mlir::func::FuncOp function, bool views);

} // namespace cleave::nn

#endif
