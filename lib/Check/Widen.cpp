// nn-widen: converts every floating-point type to f64.

#include "cleave/Check/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave {
#define GEN_PASS_DEF_WIDENPASS
#include "cleave/Check/Passes.h.inc"
} // namespace cleave

using namespace mlir;

namespace {

Type widen(Type type) {
  if (isa<FloatType>(type))
    return Float64Type::get(type.getContext());
  if (auto tensor = dyn_cast<RankedTensorType>(type))
    return tensor.clone(widen(tensor.getElementType()));
  if (auto function = dyn_cast<FunctionType>(type)) {
    auto wide = [](TypeRange types) {
      return llvm::map_to_vector(types, widen);
    };
    return FunctionType::get(type.getContext(), wide(function.getInputs()),
                             wide(function.getResults()));
  }
  return type;
}

APFloat widen(APFloat value) {
  bool losesInfo;
  value.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven,
                &losesInfo);
  return value;
}

/// Returns the attribute with its floats converted to f64; null if it has no
/// floats.
TypedAttr widenConstant(TypedAttr value) {
  if (auto scalar = dyn_cast<FloatAttr>(value))
    return FloatAttr::get(widen(scalar.getType()), widen(scalar.getValue()));
  auto dense = dyn_cast<DenseFPElementsAttr>(value);
  if (!dense)
    return {};
  return dense.mapValues(
      widen(dense.getElementType()),
      [](const APFloat &element) { return widen(element).bitcastToAPInt(); });
}

/// Replaces float types by f64 types in the type attributes of an argument or
/// result, such as the global type of a tile.
DictionaryAttr widenTypes(DictionaryAttr attrs) {
  NamedAttrList list(attrs);
  for (NamedAttribute attr : attrs)
    if (auto type = dyn_cast<TypeAttr>(attr.getValue()))
      list.set(attr.getName(), TypeAttr::get(widen(type.getValue())));
  return list.getDictionary(attrs.getContext());
}

void widenSignature(func::FuncOp func) {
  for (unsigned i = 0; i < func.getNumArguments(); ++i)
    if (DictionaryAttr attrs = func.getArgAttrDict(i))
      func.setArgAttrs(i, widenTypes(attrs));
  for (unsigned i = 0; i < func.getNumResults(); ++i)
    if (DictionaryAttr attrs = func.getResultAttrDict(i))
      func.setResultAttrs(i, widenTypes(attrs));
  func.setType(widen(func.getFunctionType()));
}

struct WidenPass : cleave::impl::WidenPassBase<WidenPass> {
  using Base::Base;

  void runOnOperation() override {
    SmallVector<Operation *> casts;
    WalkResult result = getOperation().walk([&](Operation *op) {
      if (op == getOperation())
        return WalkResult::advance();
      if (auto bitcast = dyn_cast<arith::BitcastOp>(op)) {
        op->emitOpError("from ") << bitcast.getIn().getType() << " to "
                                 << bitcast.getType() << " has no form in f64";
        return WalkResult::interrupt();
      }
      if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
        if (TypedAttr wide = widenConstant(constant.getValue())) {
          constant.setValueAttr(wide);
        } else if (widen(constant.getType()) != constant.getType()) {
          op->emitOpError("of ")
              << constant.getType() << " is not dense and cannot be widened";
          return WalkResult::interrupt();
        }
      }
      if (auto func = dyn_cast<func::FuncOp>(op))
        widenSignature(func);
      for (Value value : op->getResults())
        value.setType(widen(value.getType()));
      for (Region &region : op->getRegions())
        for (Block &block : region)
          for (Value argument : block.getArguments())
            argument.setType(widen(argument.getType()));
      if (isa<arith::ExtFOp, arith::TruncFOp>(op))
        casts.push_back(op);
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      return signalPassFailure();
    for (Operation *cast : casts) {
      cast->getResult(0).replaceAllUsesWith(cast->getOperand(0));
      cast->erase();
    }
  }
};

} // namespace
