// Functions that several families of operators use.

#include "Families.h"

using namespace mlir;
using llvm::ArrayRef;
using llvm::Error;
using llvm::Expected;
using llvm::Twine;

namespace cleave::importer {

Error one(Node &node, Expected<Operand> result) {
  if (!result)
    return result.takeError();
  node.set(0, std::move(*result));
  return Error::success();
}

Error allKnown(Node &node, size_t needed) {
  for (size_t i = 0; i < needed; ++i)
    if (!node.has(i))
      return reason("its input " + Twine(i) + " is missing");
  for (size_t i = 0; i < node.numInputs(); ++i)
    if (node.has(i) && !node.input(i).isHost())
      return reason("it is supported only where its inputs are known when "
                    "importing, and input " +
                    Twine(i) + " depends on data");
  return Error::success();
}

/// Converts negative indices, which count from the end. All indices are within
/// the dimension.
Expected<HostTensor> normalised(const HostTensor &indices, int64_t size,
                                Element table) {
  std::optional<int64_t> outside;
  HostTensor compressed = indices.compressed();
  const HostTensor *operand = &compressed;
  forEach(operand, compressed.shape(), [&](const int64_t *at) {
    int64_t index = compressed.intAt(*at);
    if (index < -size || index >= size)
      outside = index;
  });
  if (outside)
    return reason("index " + Twine(*outside) +
                  " is outside a dimension of size " + Twine(size) +
                  (isFloat(table) ? kLongSequence : ""));
  llvm::SmallVector<HostTensor> operands = {compressed,
                                            HostTensor::ofInt(size)};
  return mapInts(
      Element::I64, {&operands[0], &operands[1]},
      [](const int64_t *v) { return v[0] < 0 ? v[0] + v[1] : v[0]; });
}

Error joinable(ArrayRef<Operand> operands, int64_t axis, llvm::StringRef what) {
  for (const Operand &operand : operands) {
    Shape want = operands[0].shape;
    if (axis >= 0 && operand.rank() == int64_t(want.size()))
      want[axis] = operand.shape[axis];
    if (operand.shape != want || operand.type != operands[0].type)
      return reason(what + " " + nameOf(operands[0].type) +
                    spell(operands[0].shape) + " and " + nameOf(operand.type) +
                    spell(operand.shape));
  }
  return Error::success();
}

void copyElement(HostTensor &to, int64_t toAt, const HostTensor &from,
                 int64_t fromAt) {
  to.setFrom(toAt, from, fromAt);
}

} // namespace cleave::importer
