// The boundary table: the buffers that have a name outside of the program.
//
// Functions of the logical program name their arguments and results with
// `nn.name` and `nn.role`. A name and role mean one buffer in all functions.

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
  /// The name of the buffer in host programs, unique among all. It is `name` if
  /// possible; a gradient is called `NAME.grad`, a metric `metric.NAME`, a tap
  /// `tap.NAME`.
  std::string buffer;
  std::string name;
  nn::Role role;
  mlir::RankedTensorType type;
  /// The type of the unsharded tensor; `type` if it is not sharded.
  mlir::RankedTensorType globalType;
  /// Attributes of the argument or result, from all functions together.
  mlir::DictionaryAttr attrs;
  /// Size and place in arena 0, or in a slot of its class, once planned.
  int64_t bytes = 0, offset = -1;
  /// The slot class of a value that lives between actions ("recv_f:W"); else
  /// empty.
  llvm::StringRef slot() const;
  /// Whether a host reads or writes the buffer. Of a parameter with slots the
  /// host sees the first slot.
  bool isVisible() const {
    return slot().empty() || role == nn::Role::Parameter;
  }
};

class BoundaryTable {
public:
  /// Reports, on the function, an argument or result without name and role, and
  /// one whose type or sharding differs from another function's. `stage`:
  /// collects the functions of this stage alone.
  static mlir::FailureOr<BoundaryTable> collect(mlir::ModuleOp module,
                                                int64_t stage = -1);

  /// The buffers that a host sees: of all stages, each name and role once,
  /// without values that only actions pass to each other.
  static mlir::FailureOr<BoundaryTable> visible(mlir::ModuleOp module);

  std::vector<BoundaryBuffer> buffers;

  /// Index of the buffer of an argument or result.
  int64_t find(llvm::StringRef name, nn::Role role) const;
  int64_t ofArgument(mlir::func::FuncOp func, unsigned index) const;
  int64_t ofResult(mlir::func::FuncOp func, unsigned index) const;

private:
  mlir::LogicalResult add(mlir::func::FuncOp func, mlir::Type type,
                          mlir::DictionaryAttr attrs, llvm::StringRef what,
                          unsigned index);
  llvm::StringMap<int64_t> byKey, byBuffer;
};

/// Bytes of a tensor of static shape; i1 counts one byte.
int64_t bytesOfType(mlir::Type type);

} // namespace cleave

#endif
