//===- PortTable.h - the table of names at function boundaries --*- C++ -*-===//
//
// Arguments and results of functions have a name and a role (such as parameter
// or gradient). Those with the same name and role are the same tensor in every
// function, so they must have the same type and the same sharding. A gradient
// has the sharding of the parameter with the same name.
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

/// Returns a text for messages: "parameter 'w'", "input 'ids'", "result 1".
std::string describe(const Port &port);

/// Returns the arguments and results of all functions with a body, in program
/// order.
llvm::SmallVector<Port> portsOf(mlir::ModuleOp module);

/// Returns the arguments and results of all functions in groups of equal name
/// and role (such as parameter). The groups, and the members of a group, are in
/// program order. Arguments and results without a name are left out.
llvm::SmallVector<llvm::SmallVector<Port>> boundaryTable(mlir::ModuleOp module);

/// Returns whether `port` is a result of @loss or @forward. Such a result is
/// read by the user, so it must not be a partial sum. Values that one function
/// passes to another function of the program may stay partial sums.
bool isForPeople(const Port &port);

/// Returns the first function that has a gradient as an argument, which is the
/// one that updates the parameters; null if the module has none.
mlir::func::FuncOp updateFunction(mlir::ModuleOp module);

/// Checks that no two sub-axes of one mesh axis cross. Two sub-axes cross if no
/// factorization of the axis has both of them as factors (see dist::crosses).
/// The error names the tensors that these sub-axes shard.
mlir::LogicalResult verifySubAxes(mlir::ModuleOp module);

/// Checks that all arguments and results with the same name (`nn.name`) and the
/// same role (`nn.role`) have one type and one sharding.
mlir::LogicalResult verifyBoundary(mlir::ModuleOp module);

} // namespace cleave::partition

#endif
