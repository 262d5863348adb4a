//===- OpPlanner.h - how one operation runs on a mesh -----------*- C++ -*-===//

#ifndef CLEAVE_LIB_PARTITION_PLANNING_OPPLANNER_H
#define CLEAVE_LIB_PARTITION_PLANNING_OPPLANNER_H

#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Partition/Propagation/FactorGraph.h"
#include "cleave/Partition/Reshard/Reshard.h"

#include "llvm/ADT/StringSet.h"

namespace cleave::partition {

/// The choice for one operation.
struct OpChoice {
  llvm::SmallVector<dist::Axes> factors;
  dist::AxisSet carry = 0;
  dist::ReduceKind carryKind = dist::ReduceKind::Sum;
  /// The operands that are read as partial sums over `carry`.
  llvm::ArrayRef<unsigned> group;
};

/// Chooses the axes of an operation's factors (OpPlanner.cpp), and what stays
/// partial (OpCarry.cpp), by the layouts of its operands and those asked for of
/// its results.
class OpPlanner {
public:
  OpPlanner(const dist::MeshAxes &mesh, const Cluster &cluster,
            const cost::LinkModel &links, ReshardPlanner &reshards)
      : mesh(mesh), cluster(cluster), links(links), reshards(reshards) {}

  /// Layouts that values have, partial axes included.
  void setLayout(mlir::Value value, dist::Layout layout) {
    layouts[value] = std::move(layout);
  }
  bool hasLayout(mlir::Value value) const { return layouts.contains(value); }
  const dist::Layout &layoutOf(mlir::Value value) const {
    return layouts.find(value)->second;
  }

  OpChoice choose(mlir::Operation *op, const ShardingRule &rule,
                  llvm::ArrayRef<dist::Layout> asked);

  /// The layout in which result `index` appears.
  dist::Layout produced(const ShardingRule &rule, const OpChoice &choice,
                        unsigned index) const {
    return producedLayout(rule, choice.factors, choice.carry, choice.carryKind,
                          index);
  }

  /// Whether the value, `kept` as it is made, lacks splits only that scattering
  /// it would give, and is read by a sum alone, perhaps widened or rounded
  /// before: what it is added to may be partial too, so that there is one
  /// reduction of the sum. Or it is rounded alone, so that less is sent after
  /// that.
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

  /// The axes of the factors where all tensors say the same; empty where they
  /// do not. (A rule without factors agrees: one empty assignment is marked by
  /// the rule's own emptiness.)
  llvm::SmallVector<dist::Axes>
  agreed(mlir::Operation *op, const ShardingRule &rule,
         llvm::ArrayRef<dist::Layout> asked) const;
  bool isValid(const ShardingRule &rule, llvm::ArrayRef<dist::Axes> axes) const;
  /// Modelled seconds: to bring operands and results to where they are needed,
  /// to compute a rank's part, and what that sends by itself.
  double cost(mlir::Operation *op, const ShardingRule &rule,
              llvm::ArrayRef<dist::Layout> asked,
              llvm::ArrayRef<dist::Axes> axes) const;
  /// Weighs assignments of the axes that tensors have to factors.
  llvm::SmallVector<dist::Axes>
  cheapest(mlir::Operation *op, const ShardingRule &rule,
           llvm::ArrayRef<dist::Layout> asked) const;

  /// Whether the result goes, without another reader, into a sum with partial
  /// sums over `axes`, or is asked for as partial sums, or leaves the function
  /// as these: then it is reduced there, and a reduction before it would be one
  /// more.
  bool isSummedLater(mlir::Operation *op, dist::AxisSet axes) const;
  /// The value, or what it will be made of by operations that are linear in it
  /// alone and have no layout yet. Null where there is none with a layout, or
  /// another reader needs the sum of what has none.
  mlir::Value originOf(mlir::Value value) const;
  /// Lets partial sums pass through the operation where that defers a
  /// reduction.
  void addCarry(mlir::Operation *op, const ShardingRule &rule,
                OpChoice &choice) const;

  const dist::MeshAxes &mesh;
  const Cluster &cluster;
  const cost::LinkModel &links;
  ReshardPlanner &reshards;
  llvm::DenseMap<mlir::Value, dist::Layout> layouts;
  /// Names of operations of which not all assignments were weighed.
  mutable llvm::StringSet<> cutKinds;
};

} // namespace cleave::partition

#endif
