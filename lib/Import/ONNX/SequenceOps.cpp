// Lowers operators on sequences of tensors. Exporters use a sequence for a
// tensor that is split and whose parts are then read (`split` followed by
// `getitem`). During import a sequence is a list of operands; sequences do not
// enter the IR.

#include "Families.h"

#include "llvm/ADT/STLExtras.h"

namespace cleave::importer {

using llvm::Error;
using llvm::Expected;
using llvm::Twine;

namespace {

using Parts = std::vector<Operand>;

Operand sequenceOf(Parts parts) {
  Operand operand;
  operand.parts = std::make_shared<const Parts>(std::move(parts));
  return operand;
}

Expected<const Parts *> partsOf(const Operand &operand) {
  if (!operand.parts)
    return reason("its input is a tensor, expected a sequence of tensors");
  return operand.parts.get();
}

/// Reads the position in input `index` of a sequence of `size` elements;
/// negative positions count from the end.
Expected<int64_t> positionIn(const Node &node, size_t index, int64_t size) {
  CLEAVE_TRY(known, node.knownInts(index, "position"));
  if (known.size() != 1)
    return reason("its position has " + Twine(known.size()) +
                  " elements, expected 1");
  int64_t at = known[0] < 0 ? known[0] + size : known[0];
  if (at < 0 || at >= size)
    return reason("its position " + Twine(known[0]) +
                  " is outside the sequence of " + Twine(size) + " tensors");
  return at;
}

/// Returns the sizes of the parts into which a dimension of size `size` is
/// split. Without the input `split`, each part has size 1. If `split` is a
/// number, it is the size of each part, except that the last part may be
/// smaller. Otherwise `split` lists the sizes.
Expected<Shape> partSizes(const Node &node, int64_t size) {
  if (!node.has(1))
    return Shape(size, 1);
  CLEAVE_TRY(given, node.knownInts(1, "split"));
  if (!node.input(1).shape.empty()) {
    int64_t total = 0;
    for (int64_t part : given)
      total += part;
    if (total != size || llvm::any_of(given, [](int64_t n) { return n < 0; }))
      return reason("it splits size " + Twine(size) + " into " + spell(given));
    return given;
  }
  if (given[0] <= 0)
    return reason("it splits into chunks of " + Twine(given[0]));
  Shape sizes;
  for (int64_t at = 0; at < size; at += given[0])
    sizes.push_back(std::min(given[0], size - at));
  return sizes;
}

Error lowerSplitToSequence(Node &node) {
  const Operand &input = node.input(0);
  CLEAVE_TRY(axis, Node::axisOf(node.intAttr("axis", 0), input.rank()));
  CLEAVE_TRY(sizes, partSizes(node, input.shape[axis]));
  // With keepdims=0, parts lose the dimension `axis`. This only applies if the
  // input `split` is absent, so that all parts have size 1.
  bool squeezes = !node.has(1) && !node.intAttr("keepdims", 1);
  Shape offsets(input.rank(), 0), ones(input.rank(), 1), box = input.shape;
  Parts parts;
  for (int64_t size : sizes) {
    box[axis] = size;
    CLEAVE_TRY(part, node.slice(input, offsets, box, ones));
    offsets[axis] += size;
    if (squeezes) {
      Shape narrow = box;
      narrow.erase(narrow.begin() + axis);
      CLEAVE_TRY(squeezed, node.reshape(part, narrow));
      parts.push_back(squeezed);
    } else {
      parts.push_back(part);
    }
  }
  node.set(0, sequenceOf(std::move(parts)));
  return Error::success();
}

Error lowerSequenceConstruct(Node &node) {
  Parts parts;
  for (size_t i = 0; i < node.numInputs(); ++i)
    parts.push_back(node.input(i));
  node.set(0, sequenceOf(std::move(parts)));
  return Error::success();
}

Error lowerSequenceAt(Node &node) {
  CLEAVE_TRY(parts, partsOf(node.input(0)));
  CLEAVE_TRY(at, positionIn(node, 1, parts->size()));
  node.set(0, (*parts)[at]);
  return Error::success();
}

Error lowerSequenceLength(Node &node) {
  CLEAVE_TRY(parts, partsOf(node.input(0)));
  return one(node, Operand(HostTensor::splat(Element::I64, {}, parts->size())));
}

Error lowerConcatFromSequence(Node &node) {
  CLEAVE_TRY(parts, partsOf(node.input(0)));
  if (parts->empty())
    return reason("the sequence is empty");
  bool isNew = node.intAttr("new_axis", 0);
  int64_t rank = parts->front().rank() + isNew;
  CLEAVE_TRY(axis, Node::axisOf(node.intAttr("axis", 0), rank));
  Parts operands = *parts;
  widenToOneType(operands);
  if (Error error = joinable(operands, isNew ? -1 : axis, "the sequence holds"))
    return error;
  for (Operand &operand : operands)
    if (isNew) {
      Shape wider = operand.shape;
      wider.insert(wider.begin() + axis, 1);
      CLEAVE_TRY(wide, node.reshape(operand, wider));
      operand = wide;
    }
  return one(node, node.concat(operands, axis));
}

} // namespace

void addSequenceOps(std::vector<OnnxOp> &table) {
  auto op = [&](llvm::StringRef name, llvm::StringRef becomes,
                LowerFunction lower, bool readsSequence = false) {
    table.push_back({name, kOldest, kNewest, 2, becomes, lower,
                     /*weightsFrom=*/-1, readsSequence});
  };
  op("ConcatFromSequence", "nn.concat", lowerConcatFromSequence, true);
  op("SequenceAt", "nn.slice", lowerSequenceAt, true);
  op("SequenceConstruct", "", lowerSequenceConstruct);
  op("SequenceLength", "", lowerSequenceLength, true);
  op("SplitToSequence", "nn.slice", lowerSplitToSequence);
}

} // namespace cleave::importer
