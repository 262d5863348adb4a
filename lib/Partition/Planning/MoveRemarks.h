//===- MoveRemarks.h - remarks on unrequested reshards ----------*- C++ -*-===//
//
// A model of many layers has the same reshards in each, so equal remarks are
// reported once, with a count. If a size that does not divide evenly is the
// cause, that is reported once for all reshards that it causes.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_LIB_PARTITION_PLANNING_MOVEREMARKS_H
#define CLEAVE_LIB_PARTITION_PLANNING_MOVEREMARKS_H

#include "cleave/Interfaces/LocalPlan.h"
#include "cleave/Partition/Reshard/Reshard.h"
#include "llvm/ADT/MapVector.h"

namespace cleave::partition {

class MoveRemarks {
public:
  explicit MoveRemarks(const dist::MeshAxes &mesh) : mesh(mesh) {}

  /// Records, for a remark, the moves that reshard an activation to the layout
  /// that `reader` needs, although no constraint or function boundary asks for
  /// this layout. `planner` has planned the moves.
  void add(mlir::Value value, const dist::Layout &from, const dist::Layout &to,
           llvm::ArrayRef<Move> moves, mlir::Operation *reader,
           ReshardPlanner &planner);

  /// Records, for a remark, that the per-rank code of `op` gathers an operand
  /// over `axes`. `gather` says which operand, and why.
  void add(mlir::Operation *op, const LocalPlan::Gather &gather,
           llvm::ArrayRef<dist::Axis> axes);

  /// Emits the remarks; the operations may be erased by now.
  void emit() const;

private:
  struct Remark {
    mlir::Location loc, source;
    /// `cause` is the size that does not divide evenly, or empty if sizes are
    /// not the cause. `start` and `what` are the text of the remark before and
    /// after the number of bytes.
    std::string cause, what, start;
    int64_t count = 0, bytes = 0;
  };

  void note(mlir::Value value, mlir::Operation *reader, llvm::StringRef name,
            const std::string &cause, const std::string &what, int64_t bytes);

  const dist::MeshAxes &mesh;
  llvm::MapVector<std::string, Remark, std::map<std::string, unsigned>> remarks;
};

} // namespace cleave::partition

#endif
