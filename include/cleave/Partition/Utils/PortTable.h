//===- PortTable.h - the table of names at function boundaries --*- C++ -*-===//
//
// Arguments and results carry a name and a role. The same name and role is the
// same tensor in every function, so it has one type and one sharding; a
// gradient is sharded like the parameter that it is named after.
//
//===----------------------------------------------------------------------===//

#ifndef CLEAVE_PARTITION_UTILS_PORTTABLE_H
#define CLEAVE_PARTITION_UTILS_PORTTABLE_H

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/Ports.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace cleave::partition {

/// One argument or result of a function.
struct Port {
  mlir::func::FuncOp func;
  bool isResult = false;
  unsigned index = 0;

  mlir::Type type() const;
  mlir::DictionaryAttr attrs() const;
  mlir::Attribute attr(llvm::StringRef name) const;
  llvm::StringRef name() const;
  std::optional<nn::Role> role() const;
  dist::ShardingAttr sharding() const;
  mlir::Location loc() const;
};

/// For messages: "parameter 'w'", "input 'ids'", "result 1".
std::string describe(const Port &port);

/// Returns the arguments and results of all functions with a body, in program
/// order.
llvm::SmallVector<Port> portsOf(mlir::ModuleOp module);

/// Returns the arguments and results grouped by name and role, groups and
/// members in program order. Arguments and results without a name are left out.
llvm::SmallVector<llvm::SmallVector<Port>> boundaryTable(mlir::ModuleOp module);

/// Whether `port` is a result of @loss or @forward, which the user reads.
/// Partial sums are reduced in these results. Values that one function passes
/// to another function of the program may stay partial sums.
bool isForPeople(const Port &port);

/// Returns the function that takes gradients as arguments, which is the one
/// that updates parameters; null if the module has none.
mlir::func::FuncOp updateFunction(mlir::ModuleOp module);

/// Checks that no two sub-axes of one mesh axis cross, which means that no
/// factorization of the axis has both as parts (see dist::crosses). The error
/// names the tensors that these sub-axes shard.
mlir::LogicalResult verifySubAxes(mlir::ModuleOp module);

/// Checks that all arguments and results of the same name and role have one
/// type and one sharding.
mlir::LogicalResult verifyBoundary(mlir::ModuleOp module);

} // namespace cleave::partition

#endif
