// Families of expert values. A model computes the experts of a layer either as
// E values, one after the other, or as one value with a dimension of size E. A
// family represents both. Its members, one per expert, have the same shape, and
// are computed in the same way from the members of other families.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTFAMILY_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTFAMILY_H

#include "Dataflow.h"

namespace cleave::nn {

struct Family {
  /// Either one value per expert, or one value with the experts along dimension
  /// `dim`, or (with `dim` -1) one value that all experts share.
  llvm::SmallVector<mlir::Value> members;
  int64_t dim = -1;

  static Family shared(mlir::Value value) { return {{value}, -1}; }
  static Family of(llvm::ArrayRef<mlir::Value> members);
  static Family along(mlir::Value value, int64_t dim) { return {{value}, dim}; }

  bool isShared() const { return dim < 0 && members.size() == 1; }
  mlir::Value first() const { return members.front(); }
  /// The shape of one member.
  Dims shape() const;
  int64_t rank() const { return shape().size(); }
};

/// The operation that computes each member of a family from members of other
/// families. Dimensions are those of one member.
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

/// Returns the operation that computes a value, as a step on operands that all
/// experts share.
std::optional<FamilyStep> stepOf(mlir::Value value);
/// Returns the operation that computes the members of a family, as a step on
/// other families. Returns a Leaf if the members are arguments; nullopt if the
/// operands form no families.
std::optional<FamilyStep> stepOf(const Family &family);

/// A test that compares the expert ids of tokens with the number of an expert.
/// In a family, member n tests for expert n.
struct ExpertTest {
  mlir::Value ids;
  /// For each dimension of the ids, the name of the corresponding dimension of
  /// the sum over experts; -1 for dimensions of size 1. Names are numbers.
  Dims frame;
  bool operator==(const ExpertTest &) const = default;
};

/// Returns the test that a family computes as a boolean or as 0 and 1, if
/// member n (or element n along `dim`) tests for expert n. `frame` has the name
/// (a number) of each dimension of a member.
std::optional<ExpertTest> testOf(const Family &family, Dims frame);

/// Returns the test that one value computes, and the expert for which it tests.
std::optional<std::pair<ExpertTest, int64_t>> testOf(mlir::Value value,
                                                     Dims frame);

} // namespace cleave::nn

#endif
