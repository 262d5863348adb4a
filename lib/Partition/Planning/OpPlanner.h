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
  /// The operands that are read as partial results over `carry`.
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

  /// The layout in which the operation produces result `index`.
  dist::Layout produced(const ShardingRule &rule, const OpChoice &choice,
                        unsigned index) const {
    return producedLayout(rule, choice.factors, choice.carry, choice.carryKind,
                          index);
  }

  /// Whether the reduction of `value` should be deferred. In layout `kept`, the
  /// value must lack only splits that a reduce-scatter gives. Either an
  /// addition is its only reader, perhaps after a widening or rounding: its
  /// other operand may be partial too, and one reduction of the sum suffices.
  /// Or the value is only rounded, so that fewer bytes are sent after the
  /// rounding.
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

  /// The axes of the factors if all tensors agree; empty otherwise. (A rule
  /// without factors also agrees: its empty assignment can be told from
  /// disagreement because the rule itself is empty.)
  llvm::SmallVector<dist::Axes>
  agreed(mlir::Operation *op, const ShardingRule &rule,
         llvm::ArrayRef<dist::Layout> asked) const;
  bool isValid(const ShardingRule &rule, llvm::ArrayRef<dist::Axes> axes) const;
  /// Modelled seconds: to reshard operands and results, to compute a rank's
  /// part, and to communicate inside the operation.
  double cost(mlir::Operation *op, const ShardingRule &rule,
              llvm::ArrayRef<dist::Layout> asked,
              llvm::ArrayRef<dist::Axes> axes) const;
  /// Evaluates assignments of the tensors' axes to factors and returns the
  /// cheapest.
  llvm::SmallVector<dist::Axes>
  cheapest(mlir::Operation *op, const ShardingRule &rule,
           llvm::ArrayRef<dist::Layout> asked) const;

  /// Whether the only reader of the result is, perhaps through linear
  /// operations, an addition with a value partial over `axes`, a constraint
  /// that asks for partial results, or a function result that is partial. The
  /// reduction then happens there, and an earlier one would be redundant.
  bool isSummedLater(mlir::Operation *op, dist::AxisSet axes) const;
  /// The nearest value with a layout from which linear unary operations compute
  /// `value`; possibly `value` itself. Null if there is none, or if another
  /// reader needs an intermediate value reduced.
  mlir::Value originOf(mlir::Value value) const;
  /// Lets partial results pass through the operation if that defers a
  /// reduction.
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
