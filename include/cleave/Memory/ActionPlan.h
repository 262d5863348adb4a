// Plans the memory of one action (a function that the host or a pipeline
// schedule calls): which values share storage, and when each storage is live.

#ifndef CLEAVE_MEMORY_ACTIONPLAN_H
#define CLEAVE_MEMORY_ACTIONPLAN_H

#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Memory/BoundaryTable.h"

#include "llvm/ADT/DenseMap.h"

namespace cleave::memory {

/// A range of memory that one value uses, or that several values share.
struct Storage {
  int64_t bytes = 0;
  /// The size of the value that the storage was created for. `bytes` is larger
  /// if a view or a kernel also accesses memory beyond the value's last
  /// element.
  int64_t ownBytes = 0;
  /// The positions (indices of operations in the function's block) from which
  /// and up to which the storage is live; -1 means before the first operation.
  int64_t first = -1, last = -1;
  /// The position of the last operation before `last` that reads the storage.
  int64_t beforeLast = -1;
  /// The index of the buffer in the boundary table, if the storage is the
  /// buffer of a named argument or result; otherwise -1.
  int64_t boundary = -1;
  /// True if the storage is an argument that the function only reads, because
  /// no result is written to the argument's buffer.
  bool constant = false;
  bool argument = false;
  bool scratch = false;
  int64_t offset = -1;
  /// The storage's name in messages.
  std::string name;
};

/// Where a value is stored.
struct Place {
  int64_t storage = -1;
  int64_t offset = 0; // in bytes from the start of the storage
  /// True if the offset is the same on all ranks.
  bool fixed = true;
  /// The largest offset on any rank.
  int64_t lastOffset = 0;
};

/// Rounds up to a multiple of 64 bytes, a cache line, at which buffers begin.
inline int64_t alignUp(int64_t bytes) { return (bytes + 63) / 64 * 64; }

class ActionPlan {
public:
  /// Plans the memory of `func`. Inserts a copy for each result that cannot be
  /// written directly to its buffer in the boundary table.
  static mlir::FailureOr<ActionPlan> create(mlir::func::FuncOp func,
                                            const BoundaryTable &table);

  /// All storages. A storage that was merged into another storage (isRoot
  /// returns false for it) has no offset of its own.
  std::vector<Storage> storages;
  bool isRoot(int64_t storage) const { return parent[storage] == storage; }
  mlir::func::FuncOp func;

  /// Returns the storage index and the byte offset of a value.
  Place placeOf(mlir::Value value) const;
  /// Returns the index of the command at a position in the function's block. If
  /// the operation at this position does not become a command of the runtime
  /// (a view, for example), returns the index of the next command.
  int64_t commandAt(int64_t position) const { return commands[position]; }
  int64_t numCommands() const { return commands.back(); }

  /// Assigns offsets to all storages that are not in the boundary table.
  /// Returns the number of bytes that they need together.
  int64_t pack();

private:
  int64_t find(int64_t storage) const;
  void analyze(const BoundaryTable &table);
  void numberCommands();
  Storage &addStorage(mlir::Value value, int64_t position);
  void addArguments(const BoundaryTable &table);
  void addReads(mlir::Operation &op,
                llvm::DenseMap<mlir::Attribute, mlir::Value> &flags);
  void addReadsBeyond(mlir::Operation &op);
  void addResults(rt::CommandOpInterface command);
  void addAlias(mlir::OpResult result, mlir::Value operand,
                const rt::Alias &alias);
  /// Inserts copies where a command would overwrite an operand that must stay
  /// intact. Returns true if it inserted any, so that the analysis must start
  /// again.
  bool repairReuse();
  void placeResults(const BoundaryTable &table, bool &repaired);
  void reuseOperands();
  bool canTake(mlir::Operation *op, unsigned result, unsigned operand) const;

  std::vector<int64_t> parent;
  llvm::DenseMap<mlir::Value, Place> places;
  llvm::DenseMap<mlir::Operation *, int64_t> positions;
  std::vector<mlir::Operation *> ops; ///< by position
  std::vector<int64_t> commands;
  /// Maps the index of a buffer in the boundary table to the storage of the
  /// argument that is in this buffer.
  llvm::DenseMap<int64_t, int64_t> argumentOf;
};

} // namespace cleave::memory

#endif
