// Reads and writes the discardable attributes of the arguments and results of
// functions, such as `nn.name` and `nn.role`. An argument or result of a
// function is called a port.

#ifndef CLEAVE_DIALECT_NN_IR_PORTS_H
#define CLEAVE_DIALECT_NN_IR_PORTS_H

#include "cleave/Dialect/NN/IR/NN.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

#include <optional>

namespace cleave::nn {

/// Returns the role of an argument or result with these attributes (which may
/// be null), or nullopt if it has none.
std::optional<Role> roleOf(mlir::DictionaryAttr attrs);
std::optional<Role> roleOf(mlir::FunctionOpInterface func, unsigned argument);
/// Returns the role of an argument of a function, or nullopt for arguments of
/// other blocks.
std::optional<Role> roleOf(mlir::BlockArgument argument);
std::optional<Role> resultRoleOf(mlir::FunctionOpInterface func,
                                 unsigned result);

/// Returns whether there is a role and it is one of `roles`.
inline bool isOneOf(std::optional<Role> role,
                    std::initializer_list<Role> roles) {
  return role && llvm::is_contained(roles, *role);
}

/// Returns the name of the role as the IR spells it, such as "parameter"; empty
/// if there is no role. Files and messages use the same names.
inline llvm::StringRef spell(std::optional<Role> role) {
  return role ? stringifyRole(*role) : llvm::StringRef();
}

/// Names of further attributes of arguments and results. NNAttrs.td and the
/// description of the dialect in NNDialect.td say what they mean.
inline constexpr llvm::StringLiteral kViewAttr = "nn.view";
inline constexpr llvm::StringLiteral kDataAttr = "nn.data";
inline constexpr llvm::StringLiteral kTiedAttr = "nn.tied";
inline constexpr llvm::StringLiteral kPartsAttr = "nn.parts";
inline constexpr llvm::StringLiteral kInitAttr = "nn.init";
inline constexpr llvm::StringLiteral kRouterAttr = "nn.router";
inline constexpr llvm::StringLiteral kLookupsAttr = "nn.lookups";
/// An i64 attribute on an integer argument whose elements are row indices (such
/// as token ids): the number of rows of the smallest table that they index.
inline constexpr llvm::StringLiteral kVocabularyAttr = "nn.vocabulary";

/// Each of these functions returns the attribute that it is named after (viewOf
/// returns `nn.view`) among the attributes `attrs` of an argument or result.
/// Returns null if `attrs` is null or lacks the attribute.
ViewAttr viewOf(mlir::DictionaryAttr attrs);
DataAttr dataOf(mlir::DictionaryAttr attrs);
InitAttr initOf(mlir::DictionaryAttr attrs);
RouterAttr routerOf(mlir::DictionaryAttr attrs);
/// Returns the entries of `nn.parts`: the tensors of the model file that are
/// stacked to give the argument. Empty if the argument lacks the attribute.
llvm::SmallVector<PartAttr> partsOf(mlir::DictionaryAttr attrs);
llvm::SmallVector<LookupAttr> lookupsOf(mlir::DictionaryAttr attrs);
/// Returns the names of the other tensors of the model file that hold the same
/// (tied) parameter, from `nn.tied`.
llvm::SmallVector<llvm::StringRef> tiedNamesOf(mlir::DictionaryAttr attrs);

/// Returns the shape that the tensor of an argument or result has in the model
/// file, given its shape `shape` in the program. If it stacks several tensors
/// of the file, returns the shape of the whole stack.
llvm::ArrayRef<int64_t> fileShapeOf(mlir::DictionaryAttr attrs,
                                    llvm::ArrayRef<int64_t> shape);

/// Returns the name of an argument or result with these attributes (which may
/// be null), or an empty string if it has none.
llvm::StringRef nameOf(mlir::DictionaryAttr attrs);
llvm::StringRef nameOf(mlir::FunctionOpInterface func, unsigned argument);
llvm::StringRef resultNameOf(mlir::FunctionOpInterface func, unsigned result);

/// These functions set the name or the role of an argument or result.
void setName(mlir::NamedAttrList &attrs, mlir::MLIRContext *context,
             const llvm::Twine &name);
void setRole(mlir::NamedAttrList &attrs, mlir::MLIRContext *context, Role role);
void setRole(mlir::FunctionOpInterface func, unsigned argument, Role role);

/// Returns the attributes {nn.name = name, nn.role = role}.
mlir::DictionaryAttr portAttrs(mlir::MLIRContext *context,
                               const llvm::Twine &name, Role role);

} // namespace cleave::nn

#endif
