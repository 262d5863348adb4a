// Tables of the discardable attributes that a dialect's verifier accepts.

#ifndef CLEAVE_SUPPORT_ATTRCHECKS_H
#define CLEAVE_SUPPORT_ATTRCHECKS_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/STLExtras.h"

namespace cleave {

struct KnownAttr {
  llvm::StringLiteral name;
  bool (*holds)(mlir::Attribute value);
  /// Describes the values for which `holds` returns true, as text for error
  /// messages.
  llvm::StringLiteral expected;
};

template <typename... Attrs> bool isAttr(mlir::Attribute value) {
  return llvm::isa<Attrs...>(value);
}

template <typename Attr> bool isListOf(mlir::Attribute value) {
  auto list = llvm::dyn_cast<mlir::ArrayAttr>(value);
  return list && llvm::all_of(list, llvm::IsaPred<Attr>);
}

inline bool isI64(mlir::Attribute value) {
  auto number = llvm::dyn_cast<mlir::IntegerAttr>(value);
  return number && number.getType().isInteger(64);
}

/// Returns whether the attribute is an i64 that is at least `Least`.
template <int64_t Least> bool isI64From(mlir::Attribute value) {
  return isI64(value) && llvm::cast<mlir::IntegerAttr>(value).getInt() >= Least;
}

/// Returns whether the attribute is an array<i64> of numbers that are at least
/// `Least`.
template <int64_t Least> bool isI64ListFrom(mlir::Attribute value) {
  auto list = llvm::dyn_cast<mlir::DenseI64ArrayAttr>(value);
  return list && llvm::all_of(list.asArrayRef(),
                              [](int64_t number) { return number >= Least; });
}

/// Begins an error about an argument of a function. The error is at the
/// argument and names the function and the argument's index, because many
/// functions have all arguments on one line.
inline mlir::InFlightDiagnostic argumentError(mlir::FunctionOpInterface func,
                                              unsigned index) {
  mlir::Region &body = func.getFunctionBody();
  mlir::Location loc =
      body.empty() ? func.getLoc() : body.getArgument(index).getLoc();
  return mlir::emitError(loc)
         << "argument " << index << " of @"
         << mlir::SymbolTable::getSymbolName(func).getValue() << ": ";
}

/// Like argumentError, for a result. Results have no locations of their own.
inline mlir::InFlightDiagnostic resultError(mlir::FunctionOpInterface func,
                                            unsigned index) {
  return mlir::emitError(func.getLoc())
         << "result " << index << " of @"
         << mlir::SymbolTable::getSymbolName(func).getValue() << ": ";
}

/// Reports an attribute that is not in the table, or that has a value which the
/// table does not accept.
inline mlir::LogicalResult
verifyKnown(llvm::function_ref<mlir::InFlightDiagnostic()> emit,
            mlir::NamedAttribute attr, llvm::ArrayRef<KnownAttr> table,
            llvm::StringRef where) {
  for (const KnownAttr &known : table)
    if (attr.getName() == known.name) {
      if (known.holds(attr.getValue()))
        return mlir::success();
      return emit() << "'" << known.name << "' is " << attr.getValue()
                    << "; expected " << known.expected;
    }
  mlir::InFlightDiagnostic error = emit();
  error << "unknown attribute '" << attr.getName().getValue() << "' on "
        << where << "; expected one of ";
  llvm::interleaveComma(table, error,
                        [&](const KnownAttr &known) { error << known.name; });
  return error;
}

} // namespace cleave

#endif
