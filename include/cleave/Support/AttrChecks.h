// Tables of the discardable attributes that a dialect's verifier accepts.

#ifndef CLEAVE_SUPPORT_ATTRCHECKS_H
#define CLEAVE_SUPPORT_ATTRCHECKS_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Diagnostics.h"
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
