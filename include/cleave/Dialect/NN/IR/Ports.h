// Ports: the arguments and results of the functions of a program. What is said
// of one stands in discardable attributes; this is how passes read and write
// them.

#ifndef CLEAVE_DIALECT_NN_IR_PORTS_H
#define CLEAVE_DIALECT_NN_IR_PORTS_H

#include "cleave/Dialect/NN/IR/NN.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

#include <optional>

namespace cleave::nn {

/// The role of a port with these attributes, which may be null.
std::optional<Role> roleOf(mlir::DictionaryAttr attrs);
std::optional<Role> roleOf(mlir::FunctionOpInterface func, unsigned argument);
/// None also of arguments of blocks that are no function's.
std::optional<Role> roleOf(mlir::BlockArgument argument);
std::optional<Role> resultRoleOf(mlir::FunctionOpInterface func,
                                 unsigned result);

/// Whether the role is one of the list.
inline bool isOneOf(std::optional<Role> role,
                    std::initializer_list<Role> roles) {
  return role && llvm::is_contained(roles, *role);
}

/// As the text of a program spells the role, which is what files and messages
/// call it; empty where there is none.
inline llvm::StringRef spell(std::optional<Role> role) {
  return role ? stringifyRole(*role) : llvm::StringRef();
}

/// Names of further attributes of ports; the attributes' own descriptions say
/// what they mean.
inline constexpr llvm::StringLiteral kViewAttr = "nn.view";
inline constexpr llvm::StringLiteral kDataAttr = "nn.data";
inline constexpr llvm::StringLiteral kTiedAttr = "nn.tied";
inline constexpr llvm::StringLiteral kPartsAttr = "nn.parts";
inline constexpr llvm::StringLiteral kInitAttr = "nn.init";
inline constexpr llvm::StringLiteral kRouterAttr = "nn.router";
inline constexpr llvm::StringLiteral kLookupsAttr = "nn.lookups";

/// Null where the port, whose attributes may be null, has none.
ViewAttr viewOf(mlir::DictionaryAttr attrs);
DataAttr dataOf(mlir::DictionaryAttr attrs);
InitAttr initOf(mlir::DictionaryAttr attrs);
RouterAttr routerOf(mlir::DictionaryAttr attrs);
/// Empty where it has none.
llvm::SmallVector<PartAttr> partsOf(mlir::DictionaryAttr attrs);
llvm::SmallVector<LookupAttr> lookupsOf(mlir::DictionaryAttr attrs);
/// Names of other tensors of the file that are the same parameter.
llvm::SmallVector<llvm::StringRef> tiedNamesOf(mlir::DictionaryAttr attrs);

/// The shape of the file's tensor, where the program sees `shape`. A stack of
/// parts counts as one tensor.
llvm::ArrayRef<int64_t> fileShapeOf(mlir::DictionaryAttr attrs,
                                    llvm::ArrayRef<int64_t> shape);

/// The name of a port with these attributes, which may be null; empty where it
/// has none.
llvm::StringRef nameOf(mlir::DictionaryAttr attrs);
llvm::StringRef nameOf(mlir::FunctionOpInterface func, unsigned argument);
llvm::StringRef resultNameOf(mlir::FunctionOpInterface func, unsigned result);

/// Set one attribute of a port.
void setName(mlir::NamedAttrList &attrs, mlir::MLIRContext *context,
             const llvm::Twine &name);
void setRole(mlir::NamedAttrList &attrs, mlir::MLIRContext *context, Role role);
void setRole(mlir::FunctionOpInterface func, unsigned argument, Role role);

/// {nn.name = name, nn.role = role}.
mlir::DictionaryAttr portAttrs(mlir::MLIRContext *context,
                               const llvm::Twine &name, Role role);

} // namespace cleave::nn

#endif
