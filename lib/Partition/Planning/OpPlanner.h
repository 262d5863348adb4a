//===- OpPlanner.h - how one operation runs on a mesh -----------*- C++ -*-===//

#ifndef CLEAVE_LIB_PARTITION_PLANNING_OPPLANNER_H
#define CLEAVE_LIB_PARTITION_PLANNING_OPPLANNER_H

#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Partition/Propagation/FactorGraph.h"
#include "cleave/Partition/Reshard/Reshard.h"

#include "llvm/ADT/StringSet.h"

namespace cleave::partition {

/// The sharding choice for one operation.
struct OpChoice {
  llvm::SmallVector<dist::Axes> factors;
  dist::AxisSet carry = 0;
  dist::ReduceKind carryKind = dist::ReduceKind::Sum;
  /// The indices of the operands that are partial over `carry` and are read
  /// without being reduced.
  llvm::ArrayRef<unsigned> group;
};

/// Chooses the axes of an operation's factors (OpPlanner.cpp) and the axes that
/// stay partial (OpCarry.cpp), given the layouts of its operands and the
/// requested layouts of its results.
class OpPlanner {
public:
  OpPlanner(const dist::MeshAxes &mesh, const Cluster &cluster,
            const cost::LinkModel &links, ReshardPlanner &reshards)
      : mesh(mesh), cluster(cluster), links(links), reshards(reshards) {}

  /// Sets the layout of a value, partial axes included.
  void setLayout(mlir::Value value, dist::Layout layout) {
    layouts[value] = std::move(layout);
  }
  bool hasLayout(mlir::Value value) const { return layouts.contains(value); }
  const dist::Layout &layoutOf(mlir::Value value) const {
    return layouts.find(value)->second;
  }

  OpChoice choose(mlir::Operation *op, const ShardingRule &rule,
                  llvm::ArrayRef<dist::Layout> asked);

  /// Returns the layout of result `index` as the operation computes it with
  /// `choice`, before any reshard.
  dist::Layout produced(const ShardingRule &rule, const OpChoice &choice,
                        unsigned index) const {
    return producedLayout(rule, choice.factors, choice.carry, choice.carryKind,
                          index);
  }

  /// Returns whether a partial result is left to its reader to reduce. `kept`
  /// is the layout in which the result is computed, `asked` the requested one.
  /// Three conditions must hold. A reduce-scatter or all-reduce of `kept` gives
  /// `asked`. The value has one reader. This reader is an addition (then only
  /// the sum is reduced) or a rounding (then fewer bytes are sent).
  static bool isReducedLater(mlir::Value value, const dist::Layout &kept,
                             const dist::Layout &asked);

private:
  using Candidates = llvm::SmallVector<llvm::SmallVector<dist::Axes, 2>>;

  template <typename Fn>
  void forEachDim(mlir::Operation *op, const ShardingRule &rule,
                  llvm::ArrayRef<dist::Layout> asked, Fn fn) const {
    for (auto [index, dims] : llvm::enumerate(rule.results))
      for (auto [dim, made] : llvm::enumerate(dims))
        fn(made, asked[index].dims[dim]);
    for (auto [index, dims] : llvm::enumerate(rule.operands)) {
      mlir::Value operand = op->getOperand(index);
      if (hasLayout(operand))
        for (auto [dim, made] : llvm::enumerate(dims))
          fn(made, layoutOf(operand).dims[dim]);
    }
  }

  /// Returns the axes of each factor if all tensors of the operation agree on
  /// them, or an empty list if they do not. The list is also empty if the rule
  /// has no factors.
  llvm::SmallVector<dist::Axes>
  agreed(mlir::Operation *op, const ShardingRule &rule,
         llvm::ArrayRef<dist::Layout> asked) const;
  bool isValid(const ShardingRule &rule, llvm::ArrayRef<dist::Axes> axes) const;
  /// Returns the modelled seconds of an operation with these axes: resharding
  /// its operands and results, computing one rank's part, and communication
  /// inside the operation.
  double cost(mlir::Operation *op, const ShardingRule &rule,
              llvm::ArrayRef<dist::Layout> asked,
              llvm::ArrayRef<dist::Axes> axes) const;
  /// Of the ways to assign the axes of the operation's tensors to factors,
  /// returns the one with the least cost.
  llvm::SmallVector<dist::Axes>
  cheapest(mlir::Operation *op, const ShardingRule &rule,
           llvm::ArrayRef<dist::Layout> asked) const;

  /// Returns whether the only reader of the result reads partial sums: an
  /// addition with another value that is partial over `axes`, a constraint that
  /// asks for partial results, or a partial function result. Linear operations
  /// may come in between. Reducing the result earlier would be redundant.
  bool isSummedLater(mlir::Operation *op, dist::AxisSet axes) const;
  /// Follows unary linear operations back from `value` to the nearest value
  /// whose layout is known, which may be `value` itself. Returns null if there
  /// is none, or if a value on this path has another reader, for which it must
  /// be reduced.
  mlir::Value originOf(mlir::Value value) const;
  /// Lets the operation read partial operands and return partial results, if
  /// this saves or defers a reduction.
  void addCarry(mlir::Operation *op, const ShardingRule &rule,
                OpChoice &choice) const;

  const dist::MeshAxes &mesh;
  const Cluster &cluster;
  const cost::LinkModel &links;
  ReshardPlanner &reshards;
  llvm::DenseMap<mlir::Value, dist::Layout> layouts;
  /// Names of operations for which not all assignments were evaluated.
  mutable llvm::StringSet<> cutKinds;
};

} // namespace cleave::partition

#endif
