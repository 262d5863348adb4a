//===- ExpertRows.h - tokens at the ranks of their experts ------*- C++ -*-===//
//
// Dispatches tokens to the ranks of their experts (the expert ranks), combines
// the results, and tracks, for one function, which tokens are at the expert
// ranks already and in which round they were sent there. A token is one row of
// a grouped product.
//
// A receive buffer has room for a bounded number of tokens. So an exchange may
// have several rounds, each of which fills the buffer anew. If routing is
// balanced, all tokens are sent in the first round; each further round (an
// overflow round) runs only if some rank still has tokens. A value at the
// expert ranks has shape [ranks, rows, ...] in each round: block p begins with
// the tokens that rank p sent. The other rows of the block are undefined, and
// their expert ids are -1.
//
// In a hierarchical exchange (ExpertLinks.h), tokens make two hops: first
// between nodes, then within the target node.
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

/// One round of an exchange. In one round, a rank sends to each rank at most as
/// many tokens as one block of the receive buffer has rows.
struct Round {
  mlir::Value sources, places, sent, received;
  /// An i1 value that says whether any rank of the group has tokens in this
  /// round; null for the first round, which is always needed.
  mlir::Value needed;
  /// The number of the dist.condition that decides at run time whether this
  /// exchange round runs; negative if the round always runs.
  int64_t number = -1;
  mlir::Value ids; // at the expert ranks
  /// `atExperts`: for each value whose rows are tokens at their source ranks,
  /// the same value at the expert ranks, either dispatched there or computed
  /// there from other such values. `recomputed`, for overflow rounds: for each
  /// value of the forward pass, the copy that the backward pass recomputes.
  llvm::MapVector<mlir::Value, mlir::Value> atExperts, recomputed;
};

/// How many tokens a rank has and sends if routing is balanced. Buffer sizes
/// and the cost model depend on these numbers.
struct ExpectedRows {
  /// The number of tokens of a rank, padding not counted.
  int64_t rows = 0;
  /// The number of tokens that a rank is expected to send to all ranks
  /// together. If this number depends on a rank's index on some mesh axes, `by`
  /// lists these axes, and `expected` has one number for each combination of
  /// indices on them. These are also the attributes of dist.all_to_all_v.
  llvm::SmallVector<int64_t> expected;
  dist::AxisListAttr by;
  /// True for the tokens of an overflow round, that is, of any round of an
  /// exchange but the first. If routing is balanced, no token is left for such
  /// a round.
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
/// Returns whether element i of the result depends only on element i of each
/// operand, and not on the index i itself. (A dropout mask does depend on the
/// index.)
bool isElementwise(mlir::Operation *op);

/// This rank's tile (`value`) of a tensor whose first dimension, the experts,
/// is split over the mesh axis, and the number of all experts (`count`).
struct Tile {
  mlir::Value value;
  int64_t count = 0;
};

class ExpertRows {
public:
  /// `maxLoad`: the capacity factor. A receive buffer has room for `maxLoad`
  /// times the tokens that it gets if routing is balanced.
  ExpertRows(mlir::func::FuncOp func, const dist::MeshAxes &mesh,
             dist::AxisListAttr axes, double maxLoad);

  /// Makes this the second hop of a hierarchical exchange: its tokens are those
  /// that `before`, the first hop, delivered to each rank.
  void continueFrom(const ExpertRows &before) {
    arrivedBefore = before.delivered;
  }
  /// Makes this the first hop of a hierarchical exchange, after which a second
  /// hop sends the tokens to other ranks along `axes`. All ranks along these
  /// axes take part in the second hop of an exchange round, so they must agree
  /// on which rounds run. If `axes` is null, there is no second hop.
  void sendOnOver(dist::AxisListAttr axes) { onwardAxes = axes; }

  /// Inserts new operations before `op`, with its attributes.
  void insertBefore(mlir::Operation *op);

  /// Returns the assignment of tokens to experts that is given by these expert
  /// ids. Plans it at the first call: emits the code that sends the ids.
  Choice &choiceOf(mlir::Value ids, const Tile &tile);
  /// Returns the assignment of tokens to experts that choiceOf has already
  /// planned for these expert ids; null if it has not.
  Choice *knownChoice(mlir::Value ids, const Tile &tile);

  /// Returns the tile from which an all-gather over the mesh axis made `value`,
  /// looking through the slice that cuts padding off; nullopt if there is no
  /// such gather.
  std::optional<Tile> gathered(mlir::Value value) const;

  /// Calls `make` with the index of each exchange round, and returns the values
  /// that `make` returns. The operations that `make` inserts for an overflow
  /// round are skipped at run time if this round has no tokens.
  llvm::SmallVector<mlir::Value>
  inRounds(Choice &choice, llvm::function_ref<mlir::Value(unsigned)> make);

  /// `rows` has one row for each token, at the source rank of the token.
  /// Returns the rows of those tokens that are sent in exchange round `round`,
  /// at the expert ranks. Dispatches them unless they are already there.
  mlir::Value dispatched(Choice &choice, unsigned round, mlir::Value rows);
  /// Returns the rows of `rows` for the tokens of exchange round `round`, at
  /// the expert ranks, if they were dispatched or can be computed there
  /// elementwise; otherwise null. In an overflow round of the backward pass,
  /// dispatches rows again that the forward pass dispatched, since they were
  /// not saved.
  mlir::Value atExperts(Choice &choice, unsigned round, mlir::Value rows);
  /// Returns the rows of a value of the forward pass at the expert ranks in an
  /// overflow round, for the backward pass. They are not saved: the operand
  /// tokens are dispatched again, and the value is computed from them. Returns
  /// null if that is not possible.
  mlir::Value recomputed(Choice &choice, unsigned round, mlir::Value rows);
  /// Returns the value before masks replaced the rows of padding tokens, which
  /// are not sent.
  mlir::Value unmasked(const Choice &choice, mlir::Value rows) const;
  /// Returns whether the rows are looked up, by the expert ids, in a table with
  /// a row per expert, such as a bias.
  bool ofExperts(const Choice &choice, mlir::Value rows);

  /// Sends the rows `atExperts`, one value for each exchange round, back to the
  /// source ranks of their tokens. Returns a value of `type` with each row in
  /// the place of its token. For the backward pass, `recompute` computes the
  /// value of one round at the expert ranks again.
  mlir::Value combine(Choice &choice, llvm::ArrayRef<mlir::Value> atExperts,
                      mlir::RankedTensorType type,
                      std::function<mlir::Value(unsigned)> recompute);
  /// Returns the sum of `terms`, which has one tensor for each exchange round.
  mlir::Value sum(Choice &choice, llvm::ArrayRef<mlir::Value> terms);

  /// Describes a value that `combine` sent back from the expert ranks to the
  /// source ranks of the tokens. `atExperts` has the value at the expert ranks
  /// in each exchange round.
  struct Combined {
    Choice *choice = nullptr;
    llvm::SmallVector<mlir::Value> atExperts;
    std::function<mlir::Value(unsigned)> recompute;
  };
  const Combined *combinedOf(mlir::Value rows) const;

  /// Returns n if, with balanced routing, one in n rows of the receive buffer
  /// holds a token in exchange round `round`.
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
                      llvm::function_ref<mlir::Value(mlir::Value)> atExpertsOf);
  mlir::Value send(Choice &choice, unsigned round, mlir::Value rows);
  mlir::Value exchange(const Choice &choice, unsigned round, mlir::Value blocks,
                       bool home);
  mlir::Value slice(mlir::Value value, unsigned dim, int64_t at);
  mlir::Value flat(mlir::Value value, llvm::ArrayRef<int64_t> shape);
  mlir::Value number(mlir::Value like, int64_t value);
  mlir::Value keep(mlir::Value value);
  mlir::Value saved(mlir::Value value);
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
  /// `delivered`: the numbers of tokens that ranks receive in this exchange if
  /// routing is balanced. The key is the value with the expert ids of the
  /// tokens at the ranks that receive them. `arrivedBefore`: if this is the
  /// second hop of a hierarchical exchange, `delivered` of the first hop.
  llvm::DenseMap<mlir::Value, ExpectedRows> arrivedBefore, delivered;
  /// The conditions (i1) of the dist.condition operations that the function
  /// already has. The key is the number that the operation gives to its
  /// condition.
  llvm::DenseMap<int64_t, mlir::Value> flags;
};

} // namespace cleave::partition

#endif // CLEAVE_LIB_PARTITION_EXPERTS_EXPERTROWS_H
