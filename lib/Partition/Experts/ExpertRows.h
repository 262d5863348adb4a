//===- ExpertRows.h - tokens at the ranks of their experts ------*- C++ -*-===//
//
// Tracks for one function which tokens are at the ranks of their experts, in
// which round, and how they are dispatched and combined. A token here is one
// row of a grouped product. Values at the expert ranks have shape [ranks,
// slots, ...]: block p has the tokens that rank p sent, from its start. The
// slots after them are undefined, and their ids are -1.
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
  /// Whether any rank of the group has tokens in this round, i1; null for the
  /// first round.
  mlir::Value needed;
  /// The number of the round's condition; negative if there is none.
  int64_t number = -1;
  mlir::Value ids; // at the expert ranks
  /// The values at the expert ranks, by local value: dispatched values, and
  /// values computed from these. For overflow rounds, `recomputed` has the
  /// values that are recomputed for the backward pass, by the value of the
  /// forward pass.
  llvm::MapVector<mlir::Value, mlir::Value> atExperts, recomputed;
};

/// The number of tokens under balanced routing.
struct Reckoned {
  /// The tokens of a rank without padding.
  int64_t rows = 0;
  /// The expected counts, in the form of dist.all_to_all_v.
  llvm::SmallVector<int64_t> expected;
  dist::AxisListAttr by;
  /// Whether these are tokens of an overflow round, which is expected to be
  /// empty.
  bool overflow = false;
};

/// One routing of tokens to experts, which is planned once.
struct Choice {
  mlir::Value ids; // of local tokens, padding included
  int64_t tile = 0, count = 0, rows = 0, places = 0;
  /// Masks of ids: the tokens whose ids they replace are not sent.
  llvm::SmallVector<PadMask, 2> masks;
  Reckoned reckoned;
  std::vector<Round> rounds;
  llvm::SmallPtrSet<mlir::Value, 8> sentRows;
};

/// The value before saves and rematerializations.
mlir::Value kept(mlir::Value value);
/// Whether each element of the result depends only on the operand elements at
/// the same index, and not on that index. (The mask of a dropout depends on
/// it.)
bool isElementwise(mlir::Operation *op);

/// A tile of the first dimension over the axis, and the size of the whole
/// dimension.
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

  /// The second hop of a hierarchical exchange: tokens are sent over `axes`
  /// from the ranks to which `before` sent them.
  void continueFrom(const ExpertRows &before) {
    arrivedBefore = before.delivered;
  }
  /// True if tokens are sent on over `axes`, so that the ranks along these axes
  /// must also agree on the rounds.
  void sendOnOver(dist::AxisListAttr axes) { onwardAxes = axes; }

  /// Inserts new operations before `op`, with its attributes.
  void insertBefore(mlir::Operation *op);

  Choice &choiceOf(mlir::Value ids, const Tile &tile);
  /// The existing choice for these ids, or null.
  Choice *knownChoice(mlir::Value ids, const Tile &tile);

  /// The tile that `value` was gathered from over the axis, seen through the
  /// slice that cuts padding; nullopt if there is none.
  std::optional<Tile> gathered(mlir::Value value) const;

  /// Calls `make` for each round; the operations that it makes belong to that
  /// round.
  llvm::SmallVector<mlir::Value>
  inRounds(Choice &choice, llvm::function_ref<mlir::Value(unsigned)> make);

  /// The tokens of a round at the expert ranks; dispatches them if necessary.
  mlir::Value dispatched(Choice &choice, unsigned round, mlir::Value rows);
  /// The tokens at the expert ranks if they are there or can be computed there
  /// elementwise; else null.
  mlir::Value atExperts(Choice &choice, unsigned round, mlir::Value rows);
  /// Like the above, for a value of the forward pass that the backward pass
  /// reads.
  mlir::Value recomputed(Choice &choice, unsigned round, mlir::Value rows);
  /// The value without the masks of padding tokens that are not sent.
  mlir::Value unmasked(const Choice &choice, mlir::Value rows) const;
  /// Whether the rows are a lookup in a per-expert table by the expert ids.
  bool ofExperts(const Choice &choice, mlir::Value rows);

  /// Combines the tokens of all rounds at their source ranks, as a value of
  /// `type`. `recompute` recomputes the tokens of one round in the backward
  /// pass.
  mlir::Value combine(Choice &choice, llvm::ArrayRef<mlir::Value> atExperts,
                      mlir::RankedTensorType type,
                      std::function<mlir::Value(unsigned)> recompute);
  /// The sum over rounds of their tiles.
  mlir::Value sum(Choice &choice, llvm::ArrayRef<mlir::Value> terms);

  /// Combined tokens: their values at the expert ranks in each round.
  struct Combined {
    Choice *choice = nullptr;
    llvm::SmallVector<mlir::Value> atExperts;
    std::function<mlir::Value(unsigned)> recompute;
  };
  const Combined *combinedOf(mlir::Value rows) const;

  /// With balanced routing, one in this many slots of the round holds a token.
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
  /// By ids: the counts of tokens that an exchange over other axes delivered
  /// here, and of those that this exchange delivers.
  llvm::DenseMap<mlir::Value, Reckoned> arrivedBefore, delivered;
  /// The flags of conditions that the function already has.
  llvm::DenseMap<int64_t, mlir::Value> flags;
};

} // namespace cleave::partition

#endif // CLEAVE_LIB_PARTITION_EXPERTS_EXPERTROWS_H
