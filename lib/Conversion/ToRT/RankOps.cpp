// Rewrites operations that depend on the rank's position in the mesh into
// operations that kernels support.

#include "SelectLibrary.h"

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;

void cleave::expandKeepFirst(dist::KeepFirstOp op) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  auto type = typeOf(op);
  auto index = RankedTensorType::get({}, b.getI64Type());
  Value place = dist::AxisIndexOp::create(b, loc, index, op.getMeshAttr(),
                                          op.getAxesAttr());
  Value first = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, place,
                                      nn::createSplat(b, loc, index, 0));
  Value mask = b.createOrFold<nn::BroadcastOp>(loc, type.clone(b.getI1Type()),
                                               first, ArrayRef<int64_t>());
  Value kept = arith::SelectOp::create(b, loc, mask, op.getInput(),
                                       nn::createSplat(b, loc, type, 0.0));
  op.replaceAllUsesWith(kept);
  op.erase();
}
