// One value of each expert of a layer, seen as one.
//
// A layer spells its experts as E values, one after the other, or as one value
// with a dimension of E. A family is either: its members have the same shape
// and follow in the same way from members of other families.

#ifndef CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTFAMILY_H
#define CLEAVE_LIB_DIALECT_NN_TRANSFORMS_EXPERTFAMILY_H

#include "Dataflow.h"

namespace cleave::nn {

struct Family {
  /// All of them, or one value with the dimension `dim`; one value without a
  /// dimension is what all experts share.
  llvm::SmallVector<mlir::Value> members;
  int64_t dim = -1;

  static Family shared(mlir::Value value) { return {{value}, -1}; }
  static Family of(llvm::ArrayRef<mlir::Value> members);
  static Family along(mlir::Value value, int64_t dim) { return {{value}, dim}; }

  bool isShared() const { return dim < 0 && members.size() == 1; }
  mlir::Value first() const { return members.front(); }
  /// Of a member.
  Dims shape() const;
  int64_t rank() const { return shape().size(); }
};

/// How the members of a family follow from those of others. Dimensions are
/// those of members.
struct FamilyStep {
  enum Kind { Leaf, Elementwise, Broadcast, Transpose, Reduce, Slice, Einsum };
  Kind kind = Leaf;
  mlir::Operation *op = nullptr;
  llvm::SmallVector<Family> operands;
  /// Broadcast: where dimensions go; Transpose: the permutation; Reduce: those
  /// that disappear.
  Dims dims;
  Dims offsets, sizes, strides;
  EinsumOp::Labels labels;
};

/// The step of one value: its operands are shared.
std::optional<FamilyStep> stepOf(mlir::Value value);
/// Leaf where the members are arguments; nothing where they are no family's
/// result.
std::optional<FamilyStep> stepOf(const Family &family);

/// A comparison of ids with the number of each member's expert.
struct ExpertTest {
  mlir::Value ids;
  /// For each dimension of the ids, the one of the frame that it is along; -1
  /// for those of size 1.
  Dims frame;
  bool operator==(const ExpertTest &) const = default;
};

/// The comparison that the members are, as booleans or numbers 0 and 1, if the
/// n-th member (or the n-th element along `dim`) tests for expert n. `frame`
/// names the dimensions of a member.
std::optional<ExpertTest> testOf(const Family &family, Dims frame);

/// The same of one value, with the number that it tests for.
std::optional<std::pair<ExpertTest, int64_t>> testOf(mlir::Value value,
                                                     Dims frame);

} // namespace cleave::nn

#endif
