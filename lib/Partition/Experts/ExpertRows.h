//===- ExpertRows.h - tokens at the ranks of their experts ------*- C++ -*-===//
//
// Tracks, for one function, which tokens are at the ranks of their experts (the
// expert ranks) and in which round they were sent there, and dispatches and
// combines them. A token is one row of a grouped product. A value at the expert
// ranks has shape [ranks, slots, ...]: block p begins with the tokens that rank
// p sent. The other slots of the block are undefined, and their ids are -1.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_LIB_PARTITION_EXPERTS_EXPERTROWS_H
#define CLEAVE_LIB_PARTITION_EXPERTS_EXPERTROWS_H

#include "cleave/Partition/Utils/PadMask.h"

#include "cleave/Dialect/Dist/IR/Layout.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"

#include <deque>
#include <functional>

namespace cleave::partition {

/// One round of an exchange. It sends at most as many tokens as there are
/// slots.
struct Round {
  mlir::Value sources, places, sent, received;
  /// An i1 value that says whether any rank of the group has tokens in this
  /// round; null for the first round, which is always needed.
  mlir::Value needed;
  /// The number of the condition (dist.condition) under which the round runs;
  /// negative if it always runs.
  int64_t number = -1;
  mlir::Value ids; // at the expert ranks
  /// `atExperts`: for each value whose rows are tokens at their source ranks,
  /// the same value at the expert ranks, either dispatched there or computed
  /// there from other such values. `recomputed`, for overflow rounds: for each
  /// value of the forward pass, the copy that the backward pass recomputes.
  llvm::MapVector<mlir::Value, mlir::Value> atExperts, recomputed;
};

/// The number of tokens under balanced routing.
struct ExpectedRows {
  /// The tokens of a rank without padding.
  int64_t rows = 0;
  /// The expected numbers of tokens, as in the attributes `expected` and `by`
  /// of dist.all_to_all_v.
  llvm::SmallVector<int64_t> expected;
  dist::AxisListAttr by;
  /// True for the tokens of an overflow round. Under balanced routing such a
  /// round is empty.
  bool overflow = false;
};

/// One assignment of tokens to experts, given by expert ids. It is planned once
/// and used by all products with these ids.
struct Choice {
  mlir::Value ids; // of local tokens, padding included
  int64_t tile = 0, count = 0, rows = 0, places = 0;
  /// The masks that set ids to -1 in `ids`. The tokens with these ids are
  /// padding and are not sent.
  llvm::SmallVector<PadMask, 2> masks;
  ExpectedRows expectedRows;
  std::vector<Round> rounds;
  llvm::SmallPtrSet<mlir::Value, 8> sentRows;
};

/// The value before saves and rematerializations.
mlir::Value kept(mlir::Value value);
/// Whether element i of the result depends only on element i of each operand,
/// and not on the index i itself. (A dropout mask does depend on the index.)
bool isElementwise(mlir::Operation *op);

/// A tile of the first dimension along the mesh axis (`value`), and the size of
/// the whole dimension (`count`).
struct Tile {
  mlir::Value value;
  int64_t count = 0;
};

class ExpertRows {
public:
  /// `maxLoad`: the capacity factor. A buffer has slots for `maxLoad` times the
  /// tokens that it gets under balanced routing.
  ExpertRows(mlir::func::FuncOp func, const dist::MeshAxes &mesh,
             dist::AxisListAttr axes, double maxLoad);

  /// Makes this the second hop of a hierarchical exchange: its tokens are those
  /// that `before`, the first hop, delivered to each rank.
  void continueFrom(const ExpertRows &before) {
    arrivedBefore = before.delivered;
  }
  /// Declares that a second hop will send the tokens on over `axes`. Then the
  /// ranks along these axes must agree on which rounds run.
  void sendOnOver(dist::AxisListAttr axes) { onwardAxes = axes; }

  /// Inserts new operations before `op`, with its attributes.
  void insertBefore(mlir::Operation *op);

  Choice &choiceOf(mlir::Value ids, const Tile &tile);
  /// Returns the planned choice for these expert ids; null if there is none.
  Choice *knownChoice(mlir::Value ids, const Tile &tile);

  /// Returns the tile from which an all-gather over the mesh axis made `value`,
  /// looking through the slice that cuts padding off; nullopt if there is no
  /// such gather.
  std::optional<Tile> gathered(mlir::Value value) const;

  /// Calls `make` for each round, with the round's number, and returns the
  /// values that it makes. Operations that it inserts are marked as part of the
  /// round.
  llvm::SmallVector<mlir::Value>
  inRounds(Choice &choice, llvm::function_ref<mlir::Value(unsigned)> make);

  /// Returns the values `rows` of a round's tokens at the expert ranks.
  /// Dispatches them if they are not there.
  mlir::Value dispatched(Choice &choice, unsigned round, mlir::Value rows);
  /// Returns the values `rows` of a round's tokens at the expert ranks, if they
  /// were dispatched or can be computed there elementwise; otherwise null.
  mlir::Value atExperts(Choice &choice, unsigned round, mlir::Value rows);
  /// Like atExperts, for a value of the forward pass that the backward pass
  /// reads: computes the value again at the expert ranks.
  mlir::Value recomputed(Choice &choice, unsigned round, mlir::Value rows);
  /// Returns the value before masks replaced the rows of padding tokens, which
  /// are not sent.
  mlir::Value unmasked(const Choice &choice, mlir::Value rows) const;
  /// Whether the rows are looked up, by the expert ids, in a table with a row
  /// per expert, such as a bias.
  bool ofExperts(const Choice &choice, mlir::Value rows);

  /// Combines the tokens of all rounds at their source ranks, as a value of
  /// `type`. `recompute` recomputes the tokens of one round in the backward
  /// pass.
  mlir::Value combine(Choice &choice, llvm::ArrayRef<mlir::Value> atExperts,
                      mlir::RankedTensorType type,
                      std::function<mlir::Value(unsigned)> recompute);
  /// The sum over rounds of their tiles.
  mlir::Value sum(Choice &choice, llvm::ArrayRef<mlir::Value> terms);

  /// Describes a value that was sent back from the expert ranks to the source
  /// ranks of its tokens: for each round, the value at the expert ranks.
  struct Combined {
    Choice *choice = nullptr;
    llvm::SmallVector<mlir::Value> atExperts;
    std::function<mlir::Value(unsigned)> recompute;
  };
  const Combined *combinedOf(mlir::Value rows) const;

  /// Returns n if, with balanced routing, one in n slots of the round holds a
  /// token.
  int64_t shareOf(const Choice &choice, unsigned round) const;

  template <typename Op, typename... Args> mlir::Value make(Args &&...args) {
    Op op = Op::create(builder, anchor->getLoc(), std::forward<Args>(args)...);
    mark(op);
    return op->getResult(0);
  }

private:
  void plan(Choice &choice, mlir::Value ids);
  void reckon(Choice &choice);
  void reckonArrivals(const Choice &choice);
  dist::PurposeAttr purposeOf(const Choice &choice, unsigned round);
  mlir::Value ofColumn(const Round &in, mlir::Value value);
  mlir::RankedTensorType widened(const Round &in, mlir::Value value) const;
  mlir::Value rowwise(Choice &choice, unsigned round, mlir::Operation *op,
                      llvm::function_ref<mlir::Value(mlir::Value)> thereOf);
  mlir::Value send(Choice &choice, unsigned round, mlir::Value rows);
  mlir::Value exchange(const Choice &choice, unsigned round, mlir::Value blocks,
                       bool home);
  mlir::Value slice(mlir::Value value, unsigned dim, int64_t at);
  mlir::Value flat(mlir::Value value, llvm::ArrayRef<int64_t> shape);
  mlir::Value number(mlir::Value like, int64_t value);
  mlir::Value keep(mlir::Value value);
  mlir::Value keptHere(mlir::Value value);
  void mark(mlir::Operation *op);

  const dist::MeshAxes &mesh;
  dist::AxisListAttr axes, onwardAxes;
  int64_t ranks;
  double maxLoad;
  mlir::OpBuilder builder;
  mlir::Operation *anchor;
  const Round *current = nullptr;
  int64_t conditions = 0;
  std::deque<Choice> choices;
  llvm::DenseMap<mlir::Value, Combined> combinedValues;
  /// Numbers of tokens under balanced routing. The keys are the values that
  /// hold the expert ids at the expert ranks. `arrivedBefore`: tokens that the
  /// first hop delivered. `delivered`: tokens that this exchange delivers.
  llvm::DenseMap<mlir::Value, ExpectedRows> arrivedBefore, delivered;
  /// The values of conditions that the function already computes, by the number
  /// of the condition.
  llvm::DenseMap<int64_t, mlir::Value> flags;
};

} // namespace cleave::partition

#endif // CLEAVE_LIB_PARTITION_EXPERTS_EXPERTROWS_H
