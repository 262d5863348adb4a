//===- Variance.h - what a value is along each axis -------------*- C++ -*-===//
//
// The forward analysis of dist-verify-variance, over a per-rank program.
//
// A value has one state for each axis. Arguments are what their shardings say;
// all else follows from operations: by their rules on local shapes
// (VarianceRules.cpp), for collectives and operations that ask where a rank is
// (VarianceCollectives.cpp), for loops and branches (VarianceRegions.cpp).
// Beside it goes what is known of padding (VariancePadding.h).
//
// Where one dimension is split by several axes, their order is part of the
// state: each split axis knows those that are minor to it. Between axes of
// which neither knows the other, the order is not known, and nothing is
// claimed.
//
// A constant does not say whether it is a tile or the whole. Zeros are accepted
// as anything, other splats as a tile or the whole, and a reduction of what
// repeats as either reading.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_PARTITION_VERIFY_VARIANCE_H
#define CLEAVE_PARTITION_VERIFY_VARIANCE_H

#include "cleave/Partition/Verify/VariancePadding.h"

#include "cleave/Partition/Propagation/FactorGraph.h"
#include "llvm/ADT/SmallBitVector.h"

namespace cleave::partition {

class Variance {
public:
  explicit Variance(const dist::MeshAxes &mesh)
      : mesh(mesh), padding(mesh, states) {}

  /// Reports the first operation that takes a value for what it is not, or the
  /// first result that is not what its sharding says.
  llvm::LogicalResult verify(mlir::func::FuncOp func);

  /// Of a function that is verified: whether all ranks along `axes` have the
  /// same value.
  bool isInvariant(mlir::Value value, dist::AxisSet axes) const;

private:
  std::string name(dist::Axis axis) const;
  /// What a sharding says; invariant without one.
  State declared(dist::ShardingAttr sharding) const;
  static bool satisfies(const AxisState &have, const AxisState &want);
  /// In which way the one is not the other: "is ... over axis ..., `source`
  /// says
  /// ..."; empty where it is.
  std::string mismatch(const State &have, const State &want,
                       llvm::StringRef source) const;

  llvm::LogicalResult visitBlock(mlir::Block &block);
  llvm::LogicalResult visit(mlir::Operation *op);

  // Loops and branches.
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

  // Collectives and places.
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
