// An attribute that tells the cost model how many rows a rank multiplies, if
// the rank multiplies only the rows whose expert matrix is in its own tile.

#ifndef CLEAVE_INTERFACES_ROWSHARE_H
#define CLEAVE_INTERFACES_ROWSHARE_H

#include "llvm/ADT/StringRef.h"

namespace cleave {

/// Integer attribute of nn.grouped_dot and nn.grouped_outer on a tile of the
/// expert matrices. A value n says that one in n rows chooses a matrix of the
/// tile, if all matrices are chosen equally often.
inline constexpr llvm::StringLiteral kRowShareAttrName = "nn.row_share";

} // namespace cleave

#endif
