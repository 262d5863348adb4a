// Rows that a mask chooses, as NonZero finds them.
//
// How many there are is known when the program runs. So the dimension that
// counts them has a place for every element of the mask, and what is at the
// places of elements that are false is never read: each row is computed from
// its own elements alone, and at the end rows are added up where the mask is
// true.

#ifndef CLEAVE_LIB_IMPORT_ONNX_CHOSENROWS_H
#define CLEAVE_LIB_IMPORT_ONNX_CHOSENROWS_H

#include "Families.h"

namespace cleave::importer {

struct ChosenRows {
  /// The boolean mask; rows are its true elements, in row-major order.
  Operand mask;
};

/// Whether the node finds chosen rows, or reads them.
bool meetsChosenRows(const Node &node);

/// Lowers such a node. Returns a reason if the operator could tell positions
/// that are not chosen from rows.
llvm::Error lowerChosenRows(const OnnxOp &op, Node &node);

} // namespace cleave::importer

#endif
