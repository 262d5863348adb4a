// Convolutions, pools and top-k.

#include "Families.h"

#include <limits>

using namespace mlir;
using llvm::ArrayRef;
using llvm::Error;
using llvm::Expected;
using llvm::Twine;

namespace cleave::importer {

namespace {

/// The attributes of a sliding window, one entry per spatial dimension.
struct Window {
  Shape kernel, strides, dilations, low, high, output;
  /// True if the last window extends beyond the padding, which ceil_mode
  /// allows.
  bool isExtended = false;
};

Expected<Shape> entries(Node &node, llvm::StringRef name, size_t count,
                        int64_t otherwise) {
  std::optional<Shape> given = node.intsAttr(name);
  if (!given || given->empty())
    return Shape(count, otherwise);
  if (given->size() != count)
    return reason(name + " has " + Twine(given->size()) +
                  " entries, expected " + Twine(count));
  for (int64_t entry : *given)
    if (entry < otherwise)
      return reason(name + " has " + Twine(entry) + ", expected at least " +
                    Twine(otherwise));
  return *given;
}

Expected<Window> windowOf(Node &node, ArrayRef<int64_t> input,
                          ArrayRef<int64_t> kernel) {
  if (input.size() < 3)
    return reason("its input has " + Twine(input.size()) +
                  " dimensions, expected 3 or more");
  size_t count = input.size() - 2;
  Window w;
  w.kernel.assign(kernel.begin(), kernel.end());
  if (kernel.size() != count)
    return reason("its window has " + Twine(kernel.size()) +
                  " dimensions, expected " + Twine(count));
  CLEAVE_TRY(strides, entries(node, "strides", count, 1));
  CLEAVE_TRY(dilations, entries(node, "dilations", count, 1));
  CLEAVE_TRY(pads, entries(node, "pads", 2 * count, 0));
  w.strides = strides;
  w.dilations = dilations;
  std::string mode = node.stringAttr("auto_pad", "NOTSET");
  bool ceil = node.intAttr("ceil_mode", 0);
  for (size_t dim = 0; dim < count; ++dim) {
    int64_t size = input[dim + 2], stride = strides[dim];
    int64_t reach = (kernel[dim] - 1) * dilations[dim] + 1;
    int64_t low = pads[dim], high = pads[dim + count];
    if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
      int64_t windows = (size + stride - 1) / stride;
      int64_t total =
          std::max<int64_t>(0, (windows - 1) * stride + reach - size);
      low = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
      high = total - low;
    } else if (mode == "VALID") {
      low = high = 0;
    } else if (mode != "NOTSET") {
      return reason("auto_pad '" + mode + "' is not known");
    }
    int64_t room = size + low + high - reach;
    if (kernel[dim] < 1 || room < 0)
      return reason("spatial dimension " + Twine(dim) + " of size " +
                    Twine(size) +
                    " has no room for a window that reaches over " +
                    Twine(reach) + " elements");
    int64_t windows = room / stride + 1;
    // ceil_mode adds a last window beyond the end, if that window begins inside
    // the input or the padding before it.
    if (ceil && room % stride != 0 && windows * stride < size + low) {
      high += stride - room % stride;
      ++windows;
      w.isExtended = true;
    }
    w.low.push_back(low);
    w.high.push_back(high);
    w.output.push_back(windows);
  }
  return w;
}

RankedTensorType resultType(Value like, int64_t samples, int64_t features,
                            const Window &window) {
  Shape shape = {samples, features};
  shape.append(window.output.begin(), window.output.end());
  return RankedTensorType::get(
      shape, cast<RankedTensorType>(like.getType()).getElementType());
}

Error lowerConv(Node &node) {
  const Operand &input = node.input(0), &filter = node.input(1);
  if (!isFloat(input.type) || filter.rank() != input.rank())
    return reason("its input and filter are no float tensors of one rank");
  CLEAVE_TRY(window, windowOf(node, input.shape,
                              ArrayRef<int64_t>(filter.shape).drop_front(2)));
  int64_t groups = node.intAttr("group", 1), features = filter.shape[0];
  if (groups < 1 || input.shape[1] != filter.shape[1] * groups ||
      features % groups != 0)
    return reason("its filter " + spell(filter.shape) + " does not fit input " +
                  spell(input.shape) + " in " + Twine(groups) + " groups");
  CLEAVE_TRY(x, node.value(input));
  CLEAVE_TRY(w, node.value(filter));
  Operand result(nn::ConvOp::create(
      node.builder, node.loc, resultType(x, input.shape[0], features, window),
      x, w, window.strides, window.dilations, window.low, window.high, groups));
  if (!node.has(2)) {
    node.set(0, result);
    return Error::success();
  }
  Shape spread(input.rank(), 1);
  spread[1] = features;
  CLEAVE_TRY(bias, node.reshape(node.input(2), spread));
  return one(node, add(node, result, bias));
}

Expected<Operand> pool(Node &node, nn::PoolKind kind, const Operand &input,
                       const Window &window) {
  for (size_t dim = 0; dim < window.kernel.size(); ++dim)
    if (int64_t most = (window.kernel[dim] - 1) * window.dilations[dim];
        window.low[dim] > most || window.high[dim] > most)
      return reason("pads spatial dimension " + Twine(dim) +
                    " by a whole window");
  CLEAVE_TRY(x, node.value(input));
  return Operand(
      nn::PoolOp::create(node.builder, node.loc,
                         resultType(x, input.shape[0], input.shape[1], window),
                         kind, x, window.kernel, window.strides,
                         window.dilations, window.low, window.high));
}

Expected<Window> poolWindow(Node &node) {
  std::optional<Shape> kernel = node.intsAttr("kernel_shape");
  if (!kernel)
    return reason("kernel_shape is missing");
  return windowOf(node, node.input(0).shape, *kernel);
}

Error lowerMaxPool(Node &node) {
  if (!isFloat(node.input(0).type))
    return reason("its input is no float tensor");
  if (node.wants(1))
    return reason("its second result, the indices, is not supported");
  CLEAVE_TRY(window, poolWindow(node));
  return one(node, pool(node, nn::PoolKind::Max, node.input(0), window));
}

Error lowerAveragePool(Node &node) {
  const Operand &input = node.input(0);
  if (!isFloat(input.type))
    return reason("its input is no float tensor");
  CLEAVE_TRY(window, poolWindow(node));
  bool countsPads = node.intAttr("count_include_pad", 0);
  if (countsPads && window.isExtended)
    return reason("ceil_mode together with count_include_pad is not supported");
  CLEAVE_TRY(sum, pool(node, nn::PoolKind::Sum, input, window));
  auto isZero = [](int64_t pad) { return pad == 0; };
  if (countsPads ||
      (llvm::all_of(window.low, isZero) && llvm::all_of(window.high, isZero))) {
    int64_t count = 1;
    for (int64_t size : window.kernel)
      count *= size;
    return one(node,
               divide(node, sum, node.splat(input.type, {}, double(count))));
  }
  // The number of elements of each window that are inside the input.
  Shape single = input.shape;
  single[0] = single[1] = 1;
  CLEAVE_TRY(count, pool(node, nn::PoolKind::Sum,
                         node.splat(input.type, single, 1.0), window));
  return one(node, divide(node, sum, count));
}

template <nn::Combiner combiner> Error lowerGlobalPool(Node &node) {
  const Operand &input = node.input(0);
  if (!isFloat(input.type) || input.rank() < 3)
    return reason("its input is no float tensor of 3 or more dimensions");
  Shape dims;
  int64_t count = 1;
  for (int64_t dim = 2; dim < input.rank(); ++dim) {
    dims.push_back(dim);
    count *= input.shape[dim];
  }
  CLEAVE_TRY(all, reduce(node, combiner, input, dims, /*keep=*/true));
  if (combiner == nn::Combiner::Max) {
    node.set(0, all);
    return Error::success();
  }
  return one(node,
             divide(node, all, node.splat(input.type, {}, double(count))));
}

} // namespace

void addConvolutionOps(std::vector<OnnxOp> &table) {
  auto op = [&](llvm::StringRef name, llvm::StringRef becomes,
                LowerFunction lower) {
    table.push_back({name, kOldest, kNewest, 1, becomes, lower});
  };
  op("Conv", "nn.conv", lowerConv);
  table.back().weightsFrom = 1;
  op("MaxPool", "nn.pool", lowerMaxPool);
  op("AveragePool", "nn.pool", lowerAveragePool);
  op("GlobalAveragePool", "nn.reduce", lowerGlobalPool<nn::Combiner::Sum>);
  op("GlobalMaxPool", "nn.reduce", lowerGlobalPool<nn::Combiner::Max>);
}

} // namespace cleave::importer
