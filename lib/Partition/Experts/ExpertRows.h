//===- ExpertRows.h - rows at the ranks of what they choose -----*- C++ -*-===//
//
// Of one function: which rows are at the ranks of the matrices that they
// choose, in which round, and how they come there and back. Values that are
// there are [ranks, places, ...]: block p has the rows that rank p sent, from
// its beginning; those after are undefined, and their ids are -1.
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

/// Rows that are exchanged together: at most as many as there are places.
struct Round {
  mlir::Value sources, places, sent, received;
  /// Whether any rank of the group has rows in it, i1; null: in the first.
  mlir::Value needed;
  /// Of its condition; negative: none.
  int64_t number = -1;
  mlir::Value ids; // there
  /// By local value: what arrives of it, or is made of what arrived. Of further
  /// rounds also what is made again for the backward pass, by the forward
  /// value.
  llvm::MapVector<mlir::Value, mlir::Value> there, again;
};

/// How many rows there are where they choose ranks alike.
struct Reckoned {
  /// Of a rank with no padding among its own.
  int64_t rows = 0;
  /// As dist.all_to_all_v has it.
  llvm::SmallVector<int64_t> expected;
  dist::AxisListAttr by;
  /// They are of a round that none is expected in.
  bool overflow = false;
};

/// One choice of matrices by rows, for which everything is planned once.
struct Choice {
  mlir::Value ids; // of local rows, padding or not
  int64_t tile = 0, count = 0, rows = 0, places = 0;
  /// Of ids: rows that they replace go nowhere.
  llvm::SmallVector<PadMask, 2> masks;
  Reckoned reckoned;
  std::vector<Round> rounds;
  llvm::SmallPtrSet<mlir::Value, 8> sentRows;
};

/// The value that is kept or recomputed, before it was.
mlir::Value kept(mlir::Value value);
/// Whether an element depends on those of the operands at the same place alone,
/// and not on where that is, as what dropout drops does.
bool isElementwise(mlir::Operation *op);

/// A tile along the first dimension over the axis, and how many there are in
/// all.
struct Tile {
  mlir::Value value;
  int64_t count = 0;
};

class ExpertRows {
public:
  /// A buffer has room for `maxLoad` times the rows that it gets where rows
  /// choose ranks alike.
  ExpertRows(mlir::func::FuncOp func, const dist::MeshAxes &mesh,
             dist::AxisListAttr axes, double maxLoad);

  /// Rows are sent on over `axes` from where they are: `before` has sent them
  /// there.
  void comeFrom(const ExpertRows &before) { earlier = before.later; }
  /// Rows go on over `axes`: those ranks agree on which rounds are needed, too.
  void goOn(dist::AxisListAttr axes) { next = axes; }

  /// New operations stand before this one, and are for what it is for.
  void at(mlir::Operation *op);

  Choice &choiceOf(mlir::Value ids, const Tile &tile);
  /// The choice that has been planned for these ids, or null.
  Choice *knownChoice(mlir::Value ids, const Tile &tile);

  /// The tile whose gather over the axis `value` is, padding cut off.
  std::optional<Tile> gathered(mlir::Value value) const;

  /// Calls `make` for each round; what is made is for that round alone.
  llvm::SmallVector<mlir::Value>
  inRounds(Choice &choice, llvm::function_ref<mlir::Value(unsigned)> make);

  /// The local rows in a round, sent unless they are there already.
  mlir::Value arrive(Choice &choice, unsigned round, mlir::Value rows);
  /// Where the rows are there, or come from what is, row by row; null where
  /// not.
  mlir::Value known(Choice &choice, unsigned round, mlir::Value rows);
  /// The same of a value of the forward pass, for the backward pass.
  mlir::Value again(Choice &choice, unsigned round, mlir::Value rows);
  /// The value before masks of padding that goes nowhere.
  mlir::Value unmasked(const Choice &choice, mlir::Value rows) const;
  /// Whether the rows are those of a table of the experts that they choose.
  bool ofExperts(const Choice &choice, mlir::Value rows);

  /// The rows of all rounds, where they were, as a value of `type`. `again`
  /// makes those of a round once more in the backward pass.
  mlir::Value bringBack(Choice &choice, llvm::ArrayRef<mlir::Value> there,
                        mlir::RankedTensorType type,
                        std::function<mlir::Value(unsigned)> again);
  /// The sum of what each round adds to tiles.
  mlir::Value sum(Choice &choice, llvm::ArrayRef<mlir::Value> terms);

  /// Rows that were returned: what they were there, in each round.
  struct Back {
    Choice *choice = nullptr;
    llvm::SmallVector<mlir::Value> there;
    std::function<mlir::Value(unsigned)> again;
  };
  const Back *backOf(mlir::Value rows) const;

  /// Of a round: one of so many places has a row, if rows choose ranks alike.
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
  dist::AxisListAttr axes, next;
  int64_t ranks;
  double maxLoad;
  mlir::OpBuilder builder;
  mlir::Operation *anchor;
  const Round *current = nullptr;
  int64_t conditions = 0;
  std::deque<Choice> choices;
  llvm::DenseMap<mlir::Value, Back> backs;
  /// By ids: of rows that an exchange over other axes has brought here, and of
  /// those that this one brings.
  llvm::DenseMap<mlir::Value, Reckoned> earlier, later;
  /// Of conditions that the function has already.
  llvm::DenseMap<int64_t, mlir::Value> flags;
};

} // namespace cleave::partition

#endif // CLEAVE_LIB_PARTITION_EXPERTS_EXPERTROWS_H
