// Ports are the arguments and results of the functions of a program.
// Discardable attributes describe them, and passes read and write the
// attributes with these functions.

#ifndef CLEAVE_DIALECT_NN_IR_PORTS_H
#define CLEAVE_DIALECT_NN_IR_PORTS_H

#include "cleave/Dialect/NN/IR/NN.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

#include <optional>

namespace cleave::nn {

/// Returns the role of a port with these attributes, which may be null.
std::optional<Role> roleOf(mlir::DictionaryAttr attrs);
std::optional<Role> roleOf(mlir::FunctionOpInterface func, unsigned argument);
/// Returns the role of an argument of a function, or nullopt for arguments of
/// other blocks.
std::optional<Role> roleOf(mlir::BlockArgument argument);
std::optional<Role> resultRoleOf(mlir::FunctionOpInterface func,
                                 unsigned result);

/// Returns whether the role is one of the list.
inline bool isOneOf(std::optional<Role> role,
                    std::initializer_list<Role> roles) {
  return role && llvm::is_contained(roles, *role);
}

/// Returns the role's spelling in the IR, which files and messages use as well;
/// empty if there is no role.
inline llvm::StringRef spell(std::optional<Role> role) {
  return role ? stringifyRole(*role) : llvm::StringRef();
}

/// Names of further attributes of ports. The descriptions of the attributes say
/// what they mean.
inline constexpr llvm::StringLiteral kViewAttr = "nn.view";
inline constexpr llvm::StringLiteral kDataAttr = "nn.data";
inline constexpr llvm::StringLiteral kTiedAttr = "nn.tied";
inline constexpr llvm::StringLiteral kPartsAttr = "nn.parts";
inline constexpr llvm::StringLiteral kInitAttr = "nn.init";
inline constexpr llvm::StringLiteral kRouterAttr = "nn.router";
inline constexpr llvm::StringLiteral kLookupsAttr = "nn.lookups";

/// Each of these functions returns the attribute that it is named after, such
/// as `nn.view`, of a port with these attributes (which may be null). Returns
/// null if the port lacks the attribute.
ViewAttr viewOf(mlir::DictionaryAttr attrs);
DataAttr dataOf(mlir::DictionaryAttr attrs);
InitAttr initOf(mlir::DictionaryAttr attrs);
RouterAttr routerOf(mlir::DictionaryAttr attrs);
/// Returns the entries of `nn.parts` of a port, which list the tensors of the
/// model file that the port stacks; empty if the port lacks the attribute.
llvm::SmallVector<PartAttr> partsOf(mlir::DictionaryAttr attrs);
llvm::SmallVector<LookupAttr> lookupsOf(mlir::DictionaryAttr attrs);
/// Returns the names of other tensors of the file that are the same parameter.
llvm::SmallVector<llvm::StringRef> tiedNamesOf(mlir::DictionaryAttr attrs);

/// Returns the shape that a port's tensor has in the model file, given its
/// shape `shape` in the program. If the port stacks several tensors of the
/// file, the stack counts as one tensor.
llvm::ArrayRef<int64_t> fileShapeOf(mlir::DictionaryAttr attrs,
                                    llvm::ArrayRef<int64_t> shape);

/// Returns the name of a port with these attributes (which may be null), or an
/// empty string if the port has none.
llvm::StringRef nameOf(mlir::DictionaryAttr attrs);
llvm::StringRef nameOf(mlir::FunctionOpInterface func, unsigned argument);
llvm::StringRef resultNameOf(mlir::FunctionOpInterface func, unsigned result);

/// These functions set one attribute of a port.
void setName(mlir::NamedAttrList &attrs, mlir::MLIRContext *context,
             const llvm::Twine &name);
void setRole(mlir::NamedAttrList &attrs, mlir::MLIRContext *context, Role role);
void setRole(mlir::FunctionOpInterface func, unsigned argument, Role role);

/// Returns the attributes {nn.name = name, nn.role = role}.
mlir::DictionaryAttr portAttrs(mlir::MLIRContext *context,
                               const llvm::Twine &name, Role role);

} // namespace cleave::nn

#endif
