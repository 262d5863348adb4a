// Removes reshapes from a function by splitting the dimensions of its values
// into factors.
//
// Dimensions of different values that must be split in the same way (those of
// the operand and the result of an addition, all dimensions with the same
// letter of an einsum, ...) form an equivalence class. A reshape [10, 12] ->
// [2, 5, 3, 4] asks for cuts: a dimension of size 10 is cut into the factors 2
// x 5, and one of size 12 into 3 x 4. A cut applies to all dimensions of the
// class, so it may also cut operands of other reshapes. This is repeated until
// nothing changes. Then each value has a factored shape, in which each
// dimension is replaced by its factors. A reshape whose operand and result have
// the same factored shape is the identity.
//
// A dimension that an operation needs as a whole (the last dimension of a norm,
// the sequence of attention) is atomic, and its class is never cut. If the cuts
// of a reshape would contradict other cuts, or cut an atomic class, the reshape
// remains.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_FACTORDIMENSIONS_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_FACTORDIMENSIONS_H

#include "Dataflow.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <set>

namespace cleave::nn {

class FactorAnalysis {
public:
  /// With `views`, a dimension of a parameter is also cut if the function reads
  /// it only in slices of equal size that together cover it. An example is a
  /// parameter that stores two matrices side by side.
  FactorAnalysis(mlir::func::FuncOp function, bool views);

  /// Returns the sizes of the factors of a dimension, from major to minor;
  /// empty for a dimension of size 1.
  Dims factors(mlir::Value value, int64_t dim) const;
  /// Returns the factored shape of a value: the sizes of the factors of all its
  /// dimensions, in order.
  Dims shape(mlir::Value value) const;
  /// Returns whether the factored shape of any value differs from its shape.
  bool changes() const { return anyChange; }

private:
  /// A set of dimensions that are cut in the same way.
  struct Class {
    int64_t size = 1;
    bool atomic = false;
    /// Where the dimensions are cut into factors. A cut between two factors is
    /// given as the product of all factors that are minor to it: a dimension of
    /// size 24 with the factors 2 x 3 x 4 has the cuts 4 and 12. Each cut
    /// divides the next one, and all cuts divide the size.
    std::set<int64_t> cuts;
  };
  /// Consecutive dimensions of a reshape's operand, or of its result, that
  /// together have the same number of elements as those of the other.
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

/// Rewrites a function such that its values have their factored shapes, in
/// which dimensions are split into factors (see the top of this file). With
/// `views`, this includes parameters and constants, which are then read from
/// the model file in a different shape (`nn.view`). Otherwise parameters and
/// constants keep their shapes and are reshaped where they are used. Inputs and
/// results of the function always keep their shapes.
void factorDimensions(mlir::func::FuncOp function, bool views);

} // namespace cleave::nn

#endif
