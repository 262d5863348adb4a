// The tensor-parallel layouts as tables of axes.

#include "TensorScheme.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::strategy;

TensorScheme strategy::makeScheme(MLIRContext *context, StringRef layout,
                                  ArrayRef<std::string> axes,
                                  ArrayRef<std::string> batchAxes,
                                  ArrayRef<std::string> sequenceAxes,
                                  bool sequence, bool keepGathered) {
  using List = TensorScheme::List;
  auto axis = [&](size_t index) {
    return dist::AxisRefAttr::get(context, axes[index]);
  };
  auto refs = [&](ArrayRef<std::string> names) {
    List list;
    for (const std::string &name : names)
      list.push_back(dist::AxisRefAttr::get(context, name));
    return list;
  };
  List samples = refs(batchAxes), positions = refs(sequenceAxes);
  auto batch = [&](std::initializer_list<dist::AxisRefAttr> more) {
    List list = samples;
    list.append(more.begin(), more.end());
    return list;
  };

  TensorScheme scheme;
  scheme.samples = samples;
  scheme.positions = positions;
  if (layout == "1d") {
    auto t = axis(0);
    scheme.outer = {batch({}), positions, {}};
    scheme.inner = {batch({}), positions, {t}};
    scheme.inputs = scheme.computeBatch = batch({});
    scheme.computeChosen = {t};
    scheme.pins = sequence;
    scheme.keepGathered = keepGathered;
    if (sequence)
      scheme.outer.sequence.push_back(t);
    return scheme;
  }
  if (layout == "2d" || layout == "2.5d") {
    bool deep = layout == "2.5d";
    auto row = axis(deep ? 1 : 0), col = axis(deep ? 2 : 1);
    List split = deep ? batch({axis(0), row}) : batch({row});
    scheme.outer = scheme.inner = {split, positions, {col}};
    scheme.inputs = scheme.computeBatch = split;
    scheme.bySide = true;
    scheme.computeOut = {col};
    scheme.gathered = {row};
    return scheme;
  }
  // 3D: a product reduces over the axis that splits the contracted features,
  // and scatters the sum onto the batch.
  auto i = axis(0), j = axis(1), k = axis(2);
  scheme.outer = {batch({i, j}), positions, {k}};
  scheme.inner = {batch({i, k}), positions, {j}};
  scheme.inputs = scheme.computeBatch = batch({i});
  scheme.computeHidden = {k};
  scheme.computeChosen = {j};
  scheme.gathered = {i};
  scheme.keepGathered = true;
  return scheme;
}
