// The boundary table lists the buffers that have a name outside of the program.
//
// Functions of the logical program name their arguments and results with
// `nn.name` and `nn.role`. Arguments and results with equal name and role share
// one buffer in all functions.

#ifndef CLEAVE_MEMORY_BOUNDARYTABLE_H
#define CLEAVE_MEMORY_BOUNDARYTABLE_H

#include "cleave/Dialect/NN/IR/Ports.h"
#include "cleave/Interfaces/ProgramWalk.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringMap.h"

#include <string>
#include <vector>

namespace cleave {

struct BoundaryBuffer {
  /// The unique name of the buffer in host programs. It is equal to `name` if
  /// possible; a gradient is called `NAME.grad`, a metric `metric.NAME`, and a
  /// tap (a result that `cleave check` adds to compare it) `tap.NAME`.
  std::string buffer;
  std::string name;
  nn::Role role;
  mlir::RankedTensorType type;
  /// The type of the unsharded tensor; `type` if it is not sharded.
  mlir::RankedTensorType globalType;
  /// The attributes of the argument or result, merged over all functions.
  mlir::DictionaryAttr attrs;
  /// The size of the buffer and, after memory is planned, its offset: in arena
  /// 0 or, for a value with a slot class, in the memory of its microbatch.
  int64_t bytes = 0, offset = -1;
  /// Returns the slot class of a value that one action of a pipeline schedule
  /// stores for later actions. The value has a copy for each microbatch in
  /// flight, and the slot class, such as "recv_f:W", names the first and the
  /// last action for which a copy is kept. Empty for all other values.
  llvm::StringRef slot() const;
  /// Returns whether a host reads or writes the buffer. If several versions of
  /// a parameter are stored, the host sees the first one.
  bool isVisible() const {
    return slot().empty() || role == nn::Role::Parameter;
  }
};

class BoundaryTable {
public:
  /// Collects the buffers of all functions or, with `stage`, of the functions
  /// of this stage only. Reports an argument or result without name and role,
  /// or with a type or sharding that differs from another function's.
  static mlir::FailureOr<BoundaryTable> collect(mlir::ModuleOp module,
                                                int64_t stage = -1);

  /// Collects the arguments and results of the body of a loop.
  static mlir::FailureOr<BoundaryTable> ofBody(mlir::func::FuncOp body);

  /// Collects the buffers that a host sees, over all stages: each name and role
  /// once, without values that are only passed from action to action.
  static mlir::FailureOr<BoundaryTable> visible(mlir::ModuleOp module);

  std::vector<BoundaryBuffer> buffers;

  /// Returns the index of the buffer of an argument or result.
  int64_t find(llvm::StringRef name, nn::Role role) const;
  int64_t ofArgument(mlir::func::FuncOp func, unsigned index) const;
  int64_t ofResult(mlir::func::FuncOp func, unsigned index) const;

private:
  mlir::LogicalResult addPorts(mlir::func::FuncOp func);
  mlir::LogicalResult add(mlir::func::FuncOp func, mlir::Type type,
                          mlir::DictionaryAttr attrs, llvm::StringRef what,
                          unsigned index);
  llvm::StringMap<int64_t> byKey, byBuffer;
};

/// The bytes of a tensor of static shape; an i1 element takes one byte.
int64_t bytesOfType(mlir::Type type);

} // namespace cleave

#endif
