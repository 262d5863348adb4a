// Injected faults outside of collectives: wrong axes, padding masks and random
// numbers, and stale values.

#include "FaultPlaces.h"

#include "cleave/Support/ValueUtils.h"

#include "mlir/IR/Matchers.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::check;

namespace {

/// Returns the axes in reverse order. For a single axis, returns a different
/// axis of the mesh (with `sameSize`, one of the same size), or null if there
/// is none.
dist::AxisListAttr swapped(dist::MeshAttr mesh, dist::AxisListAttr axes,
                           bool sameSize) {
  SmallVector<dist::AxisRefAttr> changed(axes.getAxes());
  std::reverse(changed.begin(), changed.end());
  if (changed.size() < 2) {
    int64_t size = dist::axesSize(mesh, axes.getAxes());
    changed = otherAxes(mesh, axes, sameSize ? size : 0);
    if (size < 2 || changed.empty())
      return {};
    changed.truncate(1);
  }
  return dist::AxisListAttr::get(axes.getContext(), changed);
}

/// `old` is the identity of a reduction, with which padding is filled. Returns
/// a splat of the same type that changes the reduction's result.
Value noIdentity(Operation *op, Value old) {
  auto type = typeOf(old);
  DenseElementsAttr splat;
  double value = 1;
  bool known = matchPattern(old, m_Constant(&splat)) && splat.isSplat();
  if (known && isa<FloatType>(type.getElementType())) {
    double identity = 0;
    bool losesInfo;
    APFloat number = splat.getSplatValue<APFloat>();
    number.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven,
                   &losesInfo);
    identity = number.convertToDouble();
    // A large negative (positive) identity is that of a maximum (minimum). Then
    // the returned value is larger (smaller) than normal elements, and so
    // becomes the result of the reduction.
    if (identity < -1)
      value = 1000;
    else if (identity > 1)
      value = -1000;
    else
      value = identity + 1;
  }
  if (known && isa<IntegerType>(type.getElementType())) {
    APInt identity = splat.getSplatValue<APInt>();
    if (identity.getBitWidth() > 1 && identity.isMinSignedValue())
      value = 1000;
    else if (identity.getBitWidth() > 1 && identity.isMaxSignedValue())
      value = -1000;
    else
      value = identity.isZero() ? 1 : 0;
  }
  return splatBefore(op, type, value);
}

} // namespace

Places check::swappedAxes(ModuleOp module) {
  Places places;
  walkChecked(module, [&](Operation *op) {
    // The fault replaces mesh axes by other axes. The shapes of a slice or an
    // all-gather stay valid only if the new axes have the same number of ranks.
    bool sameSize = isa<dist::SliceOp, dist::AllGatherOp>(op);
    if (!sameSize && !isa<dist::TileOffsetOp, dist::AxisIndexOp>(op))
      return;
    auto mesh = meshOf(op, op->getAttrOfType<FlatSymbolRefAttr>("mesh"));
    auto axes = op->getAttrOfType<dist::AxisListAttr>("axes");
    if (dist::AxisListAttr other = swapped(mesh, axes, sameSize))
      places.push_back({op, [op, other] { op->setAttr("axes", other); }});
  });
  return places;
}

Places check::padIdentity(ModuleOp module) {
  // The fault breaks the masks of all operands of an operation together. If one
  // operand of a product were still masked, its zeros would hide the fault.
  llvm::MapVector<Operation *, SmallVector<arith::SelectOp>> readers;
  walkChecked(module, [&](Operation *op) {
    auto select = dyn_cast<arith::SelectOp>(op);
    if (select && select->hasAttr(dist::kPadMaskAttrName))
      for (Operation *user : llvm::to_vector(select->getUsers()))
        if (!user->hasAttr(dist::kPadMaskAttrName) &&
            !llvm::is_contained(readers[user], select))
          readers[user].push_back(select);
  });
  Places places;
  for (auto &[reader, masks] : readers) {
    if (masks.empty())
      continue;
    places.push_back({masks.front(), [masks = masks] {
                        for (arith::SelectOp select : masks)
                          // A tensor that is padded in several dimensions has
                          // several masks, one after the other.
                          for (Operation *op = select;
                               op && op->hasAttr(dist::kPadMaskAttrName);
                               op = op->getOperand(1).getDefiningOp())
                            op->setOperand(2,
                                           noIdentity(op, op->getOperand(2)));
                      }});
  }
  return places;
}

Places check::randomOffset(ModuleOp module) {
  Places places;
  walkChecked(module, [&](Operation *op) {
    OpOperand *moved = nullptr;
    if (auto dropout = dyn_cast<nn::DropoutOp>(op)) {
      // The fault changes the offset of the dropout's tile or, if dropout is
      // not tiled, its sample index.
      moved = dropout.getOffsets().empty() ? &dropout.getSampleIdsMutable()
                                           : &dropout.getOffsetsMutable()[0];
    } else if (auto attention = dyn_cast<nn::AttentionOp>(op);
               attention && attention.getKIndex()) {
      moved = attention.getKIndexMutable().begin();
    }
    if (!moved)
      return;
    places.push_back({op, [op, moved] {
                        OpBuilder builder(op);
                        Value one = splatBefore(op, moved->get().getType(), 1);
                        moved->set(arith::AddIOp::create(builder, op->getLoc(),
                                                         moved->get(), one));
                      }});
  });
  return places;
}

Places check::staleBuffer(ModuleOp module) {
  Places parameters, readers;
  for (auto func : module.getOps<func::FuncOp>()) {
    if (functionName(func) != nn::kUpdateFunc || func.isDeclaration())
      continue;
    Operation *end = func.getBody().front().getTerminator();
    for (unsigned result = 0; result < func.getNumResults(); ++result) {
      DictionaryAttr attrs = func.getResultAttrDict(result);
      if (nn::roleOf(attrs) != nn::Role::Parameter)
        continue;
      for (BlockArgument old : func.getArguments()) {
        DictionaryAttr other = func.getArgAttrDict(old.getArgNumber());
        if (old.getType() == end->getOperand(result).getType() &&
            nn::roleOf(other) == nn::Role::Parameter &&
            nn::nameOf(other) == nn::nameOf(attrs))
          parameters.push_back(
              {end, [end, result, old] { end->setOperand(result, old); }});
      }
    }
  }
  if (!parameters.empty())
    return parameters;
  walkChecked(module, [&](Operation *op) {
    auto reduce = dyn_cast<dist::AllReduceOp>(op);
    if (!reduce)
      return;
    for (auto [before, after] :
         llvm::zip(reduce.getInputs(), reduce.getResults()))
      for (OpOperand &use : after.getUses())
        readers.push_back({op, [&use, before] { use.set(before); }});
  });
  return readers;
}

Places check::gradientOff(ModuleOp module) {
  Places places;
  for (auto func : module.getOps<func::FuncOp>()) {
    if (functionName(func) != nn::kUpdateFunc || func.isDeclaration())
      continue;
    for (BlockArgument argument : func.getArguments()) {
      if (nn::roleOf(argument) != nn::Role::Gradient || argument.use_empty())
        continue;
      places.push_back({*argument.user_begin(), [argument]() mutable {
                          Operation *first = &argument.getOwner()->front();
                          OpBuilder builder(first);
                          Value factor =
                              splatBefore(first, argument.getType(), 1 + 1e-6);
                          auto off = arith::MulFOp::create(
                              builder, argument.getLoc(), argument, factor);
                          argument.replaceAllUsesExcept(off, off);
                        }});
    }
  }
  return places;
}

Places check::missingWaits(ModuleOp module) {
  // A wait is the only user of the result of its start. The fault lets the
  // users of the wait's result read the result of the start instead, so they
  // read the buffer during the transfer.
  Places places;
  walkChecked(module, [&](Operation *op) {
    if (!op->getName().getStringRef().starts_with("dist.wait"))
      return;
    for (OpResult done : op->getResults()) {
      if (done.getResultNumber() >= op->getNumOperands())
        break;
      Value started = op->getOperand(done.getResultNumber());
      if (started.getType() == done.getType())
        places.push_back({op, [started, done]() mutable {
                            done.replaceAllUsesWith(started);
                          }});
    }
  });
  return places;
}

Places check::ofPipelines(ModuleOp) { return {}; }
