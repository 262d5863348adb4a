// One value per expert of a layer, treated as one.
// A model spells its experts as E values, one after the other, or as one value
// with a dimension of E. A family is either: its members have the same shape,
// and are computed in the same way from the members of other families.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTFAMILY_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTFAMILY_H

#include "Dataflow.h"

namespace cleave::nn {

struct Family {
  /// One value per expert, or one value with the experts along dimension `dim`.
  /// One value without that dimension is shared by all experts.
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

/// The step that computes a value whose operands all experts share.
std::optional<FamilyStep> stepOf(mlir::Value value);
/// The step of a family. It is a Leaf if the members are arguments; nullopt if
/// the operands form no families.
std::optional<FamilyStep> stepOf(const Family &family);

/// A comparison of expert ids with the number of each member's expert.
struct ExpertTest {
  mlir::Value ids;
  /// The frame dimension of each dimension of the ids; -1 for dimensions of
  /// size 1.
  Dims frame;
  bool operator==(const ExpertTest &) const = default;
};

/// The comparison, if member n (or element n along `dim`) tests for expert n,
/// as a boolean or as 0 and 1. `frame` names the dimensions of a member.
std::optional<ExpertTest> testOf(const Family &family, Dims frame);

/// The comparison that one value is, and the expert that it tests for.
std::optional<std::pair<ExpertTest, int64_t>> testOf(mlir::Value value,
                                                     Dims frame);

} // namespace cleave::nn

#endif
