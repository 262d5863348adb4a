// A family is a group of values, one per expert, that are computed in the same
// way. A model computes the E experts of a layer either as E separate values,
// or as one value with a dimension of size E. A family represents both. Its
// members, one per expert, have the same shape, and the operation that computes
// the member of expert n reads the members of expert n in other families.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTFAMILY_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTFAMILY_H

#include "Dataflow.h"

namespace cleave::nn {

struct Family {
  /// The values of the family: one value per expert, or one value with the
  /// experts along dimension `dim`, or (with `dim` -1) one value that all
  /// experts share.
  llvm::SmallVector<mlir::Value> members;
  int64_t dim = -1;

  static Family shared(mlir::Value value) { return {{value}, -1}; }
  static Family of(llvm::ArrayRef<mlir::Value> members);
  static Family along(mlir::Value value, int64_t dim) { return {{value}, dim}; }

  bool isShared() const { return dim < 0 && members.size() == 1; }
  mlir::Value first() const { return members.front(); }
  /// Returns the shape of one member.
  Dims shape() const;
  int64_t rank() const { return shape().size(); }
};

/// How a family (one value per expert) is computed: by one operation, whose
/// operands are again families. The value of each expert is computed from the
/// operands' values of the same expert. All dimension numbers are those of the
/// value of a single expert. The kind Leaf means that the values are function
/// arguments, not results of an operation.
struct FamilyStep {
  enum Kind { Leaf, Elementwise, Broadcast, Transpose, Reduce, Slice, Einsum };
  Kind kind = Leaf;
  mlir::Operation *op = nullptr;
  llvm::SmallVector<Family> operands;
  /// For a broadcast, the result dimension of each operand dimension; for a
  /// transpose, the permutation; for a reduction, the reduced dimensions.
  Dims dims;
  Dims offsets, sizes, strides;
  EinsumOp::Labels labels;
};

/// Returns the operation that computes a value that all experts share. All
/// experts share its operands, too.
std::optional<FamilyStep> stepOf(mlir::Value value);
/// Returns the operation that computes a family (one value per expert), with
/// its operands as families. Returns a step of kind Leaf if the values are
/// function arguments. Returns nullopt if the values of the experts are
/// computed in different ways.
std::optional<FamilyStep> stepOf(const Family &family);

/// A test whether a token chose an expert: the comparison of the ids of the
/// chosen experts with the number of the expert, [ids = n].
struct ExpertTest {
  mlir::Value ids;
  /// For each dimension of `ids`, the number of the corresponding dimension of
  /// the sum over experts (see Factor in ExpertProduct.h). For example, both
  /// have a dimension that enumerates tokens. -1 for dimensions of size 1.
  Dims frame;
  bool operator==(const ExpertTest &) const = default;
};

/// If the value of each expert n in the family is the test [ids = n], returns
/// this test. The values may be booleans, or the numbers 0 and 1. For each
/// dimension of the value of one expert, `frame` has the corresponding
/// dimension of the sum over experts.
std::optional<ExpertTest> testOf(const Family &family, Dims frame);

/// If `value` is a test [ids = n], returns the test and the expert's number n.
std::optional<std::pair<ExpertTest, int64_t>> testOf(mlir::Value value,
                                                     Dims frame);

} // namespace cleave::nn

#endif
