//===- MoveRemarks.h - what is moved without being asked for ----*- C++ -*-===//
//
// A program of many layers moves the same in each: what is alike is said once,
// with how often it happens. Where a size that does not divide is why, that is
// said, once for all that it moves.
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

  /// The moves of an activation to where `reader` wants it, which no constraint
  /// or boundary asked for. `planner` made them.
  void add(mlir::Value value, const dist::Layout &from, const dist::Layout &to,
           llvm::ArrayRef<Move> moves, mlir::Operation *reader,
           ReshardPlanner &planner);

  /// What the local form of an operation gathers by itself, over `axes`.
  void add(mlir::Operation *op, const LocalPlan::Gather &gather,
           llvm::ArrayRef<dist::Axis> axes);

  /// Says what was added; the operations may be gone by now.
  void emit() const;

private:
  struct Remark {
    mlir::Location loc, source;
    /// `cause`: the size that does not divide, or empty. `start` and `what`
    /// come before and after the number of bytes.
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
