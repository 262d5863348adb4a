// Recognizes tables of positions by their elements: sinusoids, rotary angles,
// and the biases of ALiBi. This is necessary because ONNX files do not
// distinguish a module's buffers from its parameters.

#include "Classify.h"
#include "Node.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/Support/Endian.h"

#include <cmath>

namespace cleave::importer {

namespace {

constexpr int64_t kFewestPositions = 8;

/// Reads single elements of a tensor from the ONNX file's bytes without
/// converting all of them. For most tensors, a few elements show that they are
/// no tables of positions.
class Elements {
public:
  static std::optional<Elements> of(Model &model, const TensorRef &tensor) {
    Elements elements;
    elements.type = tensor.type;
    if (tensor.inFile && tensor.missing.empty()) {
      llvm::Expected<llvm::StringRef> bytes = model.read(tensor.range);
      if (bytes && int64_t(bytes->size()) ==
                       tensor.numElements() * byteSize(tensor.type)) {
        elements.bytes = *bytes;
        return elements;
      }
      llvm::consumeError(bytes.takeError());
      return std::nullopt;
    }
    llvm::Expected<HostTensor> contents = Node::contents(model, tensor);
    if (!contents) { // the import itself says which bytes are missing
      llvm::consumeError(contents.takeError());
      return std::nullopt;
    }
    elements.host = contents->compact();
    return elements;
  }

  double at(int64_t index) const {
    if (host)
      return host->floatAt(index);
    using llvm::support::endian::read;
    constexpr auto little = llvm::endianness::little;
    const char *from = bytes.data() + index * byteSize(type);
    if (type == Element::F64)
      return llvm::bit_cast<double>(read<uint64_t>(from, little));
    if (type == Element::F16)
      return llvm::APFloat(llvm::APFloat::IEEEhalf(),
                           llvm::APInt(16, read<uint16_t>(from, little)))
          .convertToDouble();
    uint32_t bits = type == Element::F32
                        ? read<uint32_t>(from, little)
                        : uint32_t(read<uint16_t>(from, little)) << 16;
    return llvm::bit_cast<float>(bits);
  }

private:
  Element type = Element::Undefined;
  llvm::StringRef bytes;
  std::optional<HostTensor> host;
};

enum class Column { Constant, Positions, Other };

/// Classifies a column x of a table. Sinusoids satisfy x[i + 1] + x[i - 1] = c
/// x[i], where c is 2 cos(angle per row); straight lines satisfy it with c = 2.
/// Rows that are `empty`, such as that of a padding token, are skipped.
Column classify(llvm::ArrayRef<double> x, const std::vector<bool> &empty,
                double tolerance) {
  double amplitude = 0, products = 0, squares = 0;
  bool varies = false;
  auto counts = [&](size_t i) {
    return !empty[i - 1] && !empty[i] && !empty[i + 1];
  };
  for (size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i]))
      return Column::Other;
    varies |= !empty[i] && x[i] != x[0];
    amplitude = std::max(amplitude, std::abs(x[i]));
  }
  for (size_t i = 1; i + 1 < x.size(); ++i)
    if (counts(i)) {
      products += (x[i - 1] + x[i + 1]) * x[i];
      squares += x[i] * x[i];
    }
  double c = squares > 0 ? std::clamp(products / squares, -2.0, 2.0) : 0;
  for (size_t i = 1; i + 1 < x.size(); ++i)
    if (counts(i) &&
        std::abs(x[i - 1] + x[i + 1] - c * x[i]) > tolerance * amplitude)
      return Column::Other;
  return varies ? Column::Positions : Column::Constant;
}

bool variesAsPositionsAlong(const Elements &elements, const Shape &shape,
                            size_t dim, double tolerance) {
  llvm::ArrayRef<int64_t> sizes = shape;
  int64_t outer = product(sizes.take_front(dim)), size = sizes[dim],
          inner = product(sizes.drop_front(dim + 1));
  std::vector<double> column(size);
  std::vector<bool> empty(size, false);
  auto read = [&](int64_t i, int64_t j) {
    for (int64_t k = 0; k < size; ++k)
      column[k] = elements.at((i * size + k) * inner + j);
  };
  auto isEmpty = [&](int64_t k) {
    for (int64_t i = 0; i < outer; ++i)
      for (int64_t j = 0; j < inner; ++j)
        if (elements.at((i * size + k) * inner + j) != 0)
          return false;
    return true;
  };
  int64_t positions = size;
  for (int64_t k = 0; k < size; ++k)
    if (isEmpty(k)) {
      empty[k] = true;
      --positions;
    }
  if (positions < kFewestPositions)
    return false;
  bool found = false;
  for (int64_t i = 0; i < outer; ++i)
    for (int64_t j = 0; j < inner; ++j) {
      read(i, j);
      Column kind = classify(column, empty, tolerance);
      if (kind == Column::Other)
        return false;
      found |= kind == Column::Positions;
    }
  return found;
}

} // namespace

bool holdsPositions(Model &model, const TensorRef &tensor) {
  if (!isFloat(tensor.type) || tensor.shape.size() < 2 ||
      llvm::none_of(tensor.shape,
                    [](int64_t size) { return size >= kFewestPositions; }))
    return false;
  std::optional<Elements> elements = Elements::of(model, tensor);
  if (!elements)
    return false;
  // The significands of bf16 and f16 have 8 and 11 bits, and the rounding
  // errors of three elements add up.
  double tolerance = byteSize(tensor.type) == 2 ? 1e-2 : 2e-3;
  for (size_t dim = 0; dim < tensor.shape.size(); ++dim)
    if (tensor.shape[dim] >= kFewestPositions &&
        variesAsPositionsAlong(*elements, tensor.shape, dim, tolerance))
      return true;
  return false;
}

} // namespace cleave::importer
