// Rows that a mask selects, as NonZero finds them.
//
// The number of these rows is known only at run time. So the dimension that
// enumerates them has one slot for every element of the mask, and slots of
// false elements are never read: each row is computed from its own elements
// alone, and results of rows are finally summed where the mask is true.

#ifndef CLEAVE_LIB_IMPORT_ONNX_CHOSENROWS_H
#define CLEAVE_LIB_IMPORT_ONNX_CHOSENROWS_H

#include "Families.h"

namespace cleave::importer {

struct ChosenRows {
  /// The boolean mask; rows are its true elements, in row-major order.
  Operand mask;
};

/// Returns whether the node finds selected rows, or reads them.
bool meetsChosenRows(const Node &node);

/// Lowers a node that finds or reads selected rows. Returns an error with a
/// reason if the result would depend on slots that are not selected.
llvm::Error lowerChosenRows(const OnnxOp &op, Node &node);

} // namespace cleave::importer

#endif
