// Computes how much of a message is padding.

#include "cleave/Dialect/Dist/IR/Padding.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;

int64_t dist::paddingOf(Operation *collective) {
  auto bytes = collective->getAttrOfType<IntegerAttr>(kPaddingAttrName);
  return bytes ? bytes.getInt() : 0;
}

void dist::setPadding(Operation *collective, int64_t bytes) {
  if (bytes > 0)
    collective->setAttr(
        kPaddingAttrName,
        Builder(collective->getContext()).getI64IntegerAttr(bytes));
}

void dist::notePadding(Operation *collective, const MeshAxes &mesh,
                       const Layout &layout, RankedTensorType whole,
                       RankedTensorType payload) {
  int64_t tiles = 1;
  for (const Axes &axes : layout.dims)
    tiles *= mesh.size(axes);
  // Without padding, the tiles of all ranks together would have as many
  // elements as the tensor.
  int64_t elements = payload.getNumElements() * tiles - whole.getNumElements();
  int64_t width = (whole.getElementTypeBitWidth() + 7) / 8;
  setPadding(collective, elements * width / tiles);
}
