// Rows that a mask selects, such as those that NonZero finds.
//
// The number of selected rows is known only at run time. So a tensor of such
// rows has one row for every element of the mask. Rows whose mask element is
// false are computed, but must not affect results: each row is computed from
// its own elements alone, and sums over rows include only those whose mask
// element is true.

#ifndef CLEAVE_LIB_IMPORT_ONNX_CHOSENROWS_H
#define CLEAVE_LIB_IMPORT_ONNX_CHOSENROWS_H

#include "Families.h"

namespace cleave::importer {

struct ChosenRows {
  /// The boolean mask. Row r is selected if element r of the mask, in row-major
  /// order, is true.
  Operand mask;
};

/// Returns whether the node computes the indices of the rows that a mask
/// selects (NonZero), or reads such rows.
bool meetsChosenRows(const Node &node);

/// Lowers a node for which meetsChosenRows is true. Returns an error with a
/// reason if the result would depend on rows that the mask does not select.
llvm::Error lowerChosenRows(const OnnxOp &op, Node &node);

} // namespace cleave::importer

#endif
