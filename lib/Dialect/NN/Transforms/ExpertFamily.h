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

/// How the members of a family are computed: one operation, applied to the
/// members of other families. Dimension numbers refer to a single member.
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

/// Returns the operation that computes a value, for a value that all experts
/// share. Its operands are then shared as well.
std::optional<FamilyStep> stepOf(mlir::Value value);
/// Returns the operation that computes each member of a family, with the
/// families of its operands. Returns a Leaf if the members are arguments;
/// nullopt if the operands do not form families.
std::optional<FamilyStep> stepOf(const Family &family);

/// A test whether a token chose an expert: compares the token's expert ids with
/// the number of the expert. A family of tests has one test for each expert.
struct ExpertTest {
  mlir::Value ids;
  /// For each dimension of the ids, the number that identifies the
  /// corresponding dimension of the sum over experts; -1 for dimensions of
  /// size 1.
  Dims frame;
  bool operator==(const ExpertTest &) const = default;
};

/// If member n of the family (or element n along `dim`) tests for expert n,
/// returns this test. Its result may be a boolean, or 0 and 1. `frame` has the
/// number that identifies each dimension of a member.
std::optional<ExpertTest> testOf(const Family &family, Dims frame);

/// If a single value is such a test, returns the test and the number of the
/// expert.
std::optional<std::pair<ExpertTest, int64_t>> testOf(mlir::Value value,
                                                     Dims frame);

} // namespace cleave::nn

#endif
