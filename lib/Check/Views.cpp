// Views of stored tensors (nn.view): a reshape, then a permutation of
// dimensions.

#include "cleave/Check/Views.h"
#include "cleave/Check/Compare.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/StageAttrs.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::check;

namespace {

ArrayRef<int64_t> permutationOf(nn::ViewAttr view) {
  DenseI64ArrayAttr list = view.getPermutation();
  return list ? list.asArrayRef() : ArrayRef<int64_t>();
}

/// Returns `tensor` with permuted dimensions: dimension i of the result is
/// dimension permutation[i] of `tensor`.
Tensor permuted(const Tensor &tensor, ArrayRef<int64_t> permutation) {
  SmallVector<int64_t> shape;
  for (int64_t dim : permutation)
    shape.push_back(tensor.shape()[dim]);
  Tensor result(tensor.type.clone(shape));
  for (int64_t flat = 0; flat < result.size(); ++flat) {
    std::vector<int64_t> index = unflatten(flat, shape);
    std::vector<int64_t> source(index.size());
    for (auto [to, from] : llvm::enumerate(permutation))
      source[from] = index[to];
    int64_t at = 0;
    for (auto [i, size] : llvm::zip_equal(source, tensor.shape()))
      at = at * size + i;
    if (tensor.isFloat())
      result.floats[flat] = tensor.floats[at];
    else
      result.ints[flat] = tensor.ints[at];
  }
  return result;
}

SmallVector<int64_t> inverse(ArrayRef<int64_t> permutation) {
  SmallVector<int64_t> result(permutation.size());
  for (auto [to, from] : llvm::enumerate(permutation))
    result[from] = to;
  return result;
}

} // namespace

DictionaryAttr check::parameterOf(ModuleOp module, StringRef name) {
  auto find = [&](func::FuncOp func) -> DictionaryAttr {
    for (const Port &other : argumentsOf(func))
      if (other.role == nn::Role::Parameter && other.name == name)
        return other.attrs;
    return {};
  };
  if (auto func = module.lookupSymbol<func::FuncOp>(nn::kLossGradFunc))
    return find(func);
  for (auto func : module.getOps<func::FuncOp>()) // of stages
    if (func->hasAttr(kStageAttr) && !func.isExternal())
      if (DictionaryAttr attrs = find(func))
        return attrs;
  return {};
}

nn::ViewAttr check::viewOf(ModuleOp module, const Port &port) {
  if (nn::ViewAttr own = nn::viewOf(port.attrs))
    return own;
  StringRef name = port.name;
  if (port.role ==
      nn::Role::State) // PARAMETER.NAME, where NAME (such as m) has no dot
    name = name.rsplit('.').first;
  else if (!nn::isOneOf(port.role, {nn::Role::Gradient, nn::Role::Tap,
                                    nn::Role::Parameter}))
    return {};
  return nn::viewOf(parameterOf(module, name));
}

Tensor check::seenThrough(nn::ViewAttr view, const Tensor &stored) {
  if (!view)
    return stored;
  Tensor seen = stored;
  seen.type = seen.type.clone(view.getView().asArrayRef());
  ArrayRef<int64_t> permutation = permutationOf(view);
  return permutation.empty() ? seen : permuted(seen, permutation);
}

Tensor check::asStored(nn::ViewAttr view, const Tensor &seen) {
  if (!view)
    return seen;
  ArrayRef<int64_t> permutation = permutationOf(view);
  Tensor stored =
      permutation.empty() ? seen : permuted(seen, inverse(permutation));
  stored.type = stored.type.clone(view.getShape().asArrayRef());
  return stored;
}
