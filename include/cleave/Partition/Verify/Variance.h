//===- Variance.h - the state of values along mesh axes ---------*- C++ -*-===//
//
// The pass dist-verify-variance is a forward analysis of a per-rank program. It
// determines how the contents of each value vary over the ranks of each mesh
// axis.
//
// A value has one state (AxisState.h) for each axis. The states of a function's
// arguments are those that their shardings declare. The states of all other
// values are computed from the operands' states, in three files: for operations
// with a sharding rule, which is applied to local shapes (VarianceRules.cpp);
// for collectives and operations that depend on the rank's position
// (VarianceCollectives.cpp); and for loops and branches (VarianceRegions.cpp).
// Padding is tracked apart from the states (VariancePadding.h).
//
// If several axes split one dimension, the state over each of these axes lists
// those that are known to be minor to it. If neither of two axes is known to be
// minor to the other, their order is unknown and is not checked.
//
// A constant may be a tile or a whole tensor. So zeros are accepted in any
// state, and other splats as a tile or as a whole tensor. If all elements of a
// value are equal along a dimension, the verifier cannot tell whether the value
// is a tile of this dimension or has all of it. So a sum over the dimension may
// be partial or complete.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_PARTITION_VERIFY_VARIANCE_H
#define CLEAVE_PARTITION_VERIFY_VARIANCE_H

#include "cleave/Partition/Verify/VariancePadding.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Partition/Propagation/FactorGraph.h"
#include "llvm/ADT/SmallBitVector.h"

namespace cleave::partition {

class Variance {
public:
  explicit Variance(const dist::MeshAxes &mesh)
      : mesh(mesh), padding(mesh, states) {}

  /// Verifies a function. Reports an error for the first operation that is not
  /// valid for the states of its operands, or for the first result of the
  /// function whose state contradicts its declared sharding.
  llvm::LogicalResult verify(mlir::func::FuncOp func);

  /// Whether all ranks along `axes` hold the same value. `verify` must have
  /// succeeded for the function.
  bool isInvariant(mlir::Value value, dist::AxisSet axes) const;

private:
  std::string name(dist::Axis axis) const;
  /// Returns the state that a declared sharding implies. Without a sharding the
  /// value is invariant over all axes.
  State declared(dist::ShardingAttr sharding) const;
  static bool satisfies(const AxisState &have, const AxisState &want);
  /// Returns a text for the first axis over which the states `have` and `want`
  /// contradict each other: "is ... over axis ..., SOURCE says ...", where
  /// SOURCE is `source`. Returns "" if there is no contradiction.
  std::string mismatch(const State &have, const State &want,
                       llvm::StringRef source) const;

  llvm::LogicalResult visitBlock(mlir::Block &block);
  llvm::LogicalResult visit(mlir::Operation *op);
  llvm::LogicalResult visitRule(mlir::Operation *op);

  // Loops and branches.
  llvm::LogicalResult visitScan(nn::ScanOp scan);
  void enterScan(nn::ScanOp scan);
  bool widenCarried(nn::ScanOp scan);
  llvm::LogicalResult visitRegions(mlir::Operation *op);
  llvm::LogicalResult check(mlir::Operation *op, mlir::Value value,
                            const State &want, unsigned index,
                            llvm::StringRef where) const;
  mlir::Operation *collectiveIn(mlir::Operation *op, dist::AxisSet axes) const;

  // Operations with rules.
  llvm::LogicalResult transfer(mlir::Operation *op, const ShardingRule &rule,
                               unsigned axis);
  llvm::LogicalResult transferSure(mlir::Operation *op,
                                   const ShardingRule &rule, unsigned axis);
  llvm::LogicalResult transferReshape(mlir::Operation *op, unsigned axis);
  llvm::LogicalResult carry(mlir::Operation *op, const ShardingRule &rule,
                            unsigned axis, llvm::ArrayRef<unsigned> partial);
  llvm::LogicalResult checkWhole(mlir::Operation *op, const ShardingRule &rule,
                                 unsigned axis, int64_t factor) const;
  llvm::LogicalResult transferOrder(mlir::Operation *op,
                                    const ShardingRule &rule);
  bool isZero(mlir::Operation *op, const ShardingRule &rule,
              unsigned axis) const;
  bool repeats(mlir::Operation *op, const ShardingRule &rule, unsigned axis,
               int64_t factor) const;
  AxisState invariantResult(mlir::Operation *op, const ShardingRule &rule,
                            unsigned axis, unsigned index) const;
  void keepPartialSums(mlir::Operation *op, const ShardingRule &rule,
                       unsigned axis);

  // These functions handle collectives and operations that depend on the rank's
  // position.
  llvm::LogicalResult visitCollective(mlir::Operation *op,
                                      llvm::ArrayRef<dist::Axis> axes);
  llvm::LogicalResult visitExchange(dist::ExchangeOp op, unsigned index,
                                    dist::AxisSet over, State &state) const;
  llvm::LogicalResult checkGathered(mlir::Operation *op, unsigned index,
                                    llvm::ArrayRef<dist::Axis> axes,
                                    int64_t dim, const State &state) const;
  void splitFurther(State &state, llvm::ArrayRef<dist::Axis> axes,
                    int64_t dim) const;
  static void forgetOrder(State &state, dist::AxisSet axes);
  void permute(State &state, dist::AxisSet over) const;
  llvm::LogicalResult visitPlace(mlir::Operation *op);

  const dist::MeshAxes &mesh;
  llvm::DenseMap<mlir::Value, State> states;
  Padding padding;
};

} // namespace cleave::partition

#endif // CLEAVE_PARTITION_VERIFY_VARIANCE_H
