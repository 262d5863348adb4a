// An attribute that tells the cost model which share of the rows a rank
// multiplies, if it multiplies only the rows whose expert matrix is in its own
// tile.

#ifndef CLEAVE_INTERFACES_ROWSHARE_H
#define CLEAVE_INTERFACES_ROWSHARE_H

#include "llvm/ADT/StringRef.h"

namespace cleave {

/// Integer attribute of an nn.grouped_dot or nn.grouped_outer that works on a
/// tile of the expert matrices. The value n says that one in n rows is
/// multiplied with a matrix of the tile, if all experts are chosen equally
/// often.
inline constexpr llvm::StringLiteral kRowShareAttrName = "nn.row_share";

} // namespace cleave

#endif
