// The boundary table lists the buffers of a program that have a name: those of
// the arguments and results of its functions.
//
// An argument or result has a name (attribute `nn.name`) and a role, such as
// parameter or gradient (`nn.role`). All arguments and results with equal name
// and role, in all functions, share one buffer.

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
  /// The size of the buffer in bytes and, once memory is planned, its offset in
  /// arena 0. If slot() is not empty, the offset is instead relative to the
  /// memory of the value's microbatch.
  int64_t bytes = 0, offset = -1;
  /// Returns the text of the attribute `pipe.slot`, such as "recv_f:W". A value
  /// that one action of a pipeline schedule stores for later actions has this
  /// attribute, and has a copy for each microbatch in flight; the text names
  /// the first and the last action for which a copy is kept. Empty for all
  /// other values.
  llvm::StringRef slot() const;
  /// Returns whether a host may read or write the buffer. If several versions
  /// of a parameter are stored, the host accesses the first one.
  bool isVisible() const {
    return slot().empty() || role == nn::Role::Parameter;
  }
};

class BoundaryTable {
public:
  /// Collects the buffers of all functions or, if `stage` is not -1, of the
  /// functions of this stage only. Reports an error for an argument or result
  /// that has no name or role, or whose type or sharding differs from that of
  /// another argument or result with the same name and role.
  static mlir::FailureOr<BoundaryTable> collect(mlir::ModuleOp module,
                                                int64_t stage = -1);

  /// Collects the buffers of the arguments and results of a loop's body.
  static mlir::FailureOr<BoundaryTable> ofBody(mlir::func::FuncOp body);

  /// Collects the buffers of all stages that a host may read or write, each
  /// name and role once. Values that are only passed from action to action are
  /// left out.
  static mlir::FailureOr<BoundaryTable> visible(mlir::ModuleOp module);

  std::vector<BoundaryBuffer> buffers;

  /// Return the index in `buffers` of the buffer of an argument or result.
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

} // namespace cleave

#endif
