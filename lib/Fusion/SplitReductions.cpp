// Splits a slow reduction into two fast ones, one along rows and one across
// rows.

#include "FormKernels.h"

#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;

namespace {

/// Reductions with fewer elements are not split: one thread is enough.
constexpr int64_t kSmall = 8192;
/// The number of partial results of a split reduction: limits, and the number
/// that is wanted.
constexpr int64_t kFewest = 16, kMost = 65536, kWanted = 256;

class Splitter {
public:
  explicit Splitter(nn::ReduceOp op)
      : op(op), b(op), type(typeOf(op.getInput())), dims(op.getDims()) {}

  void run() {
    if (dims.empty() || type.getNumElements() == 0)
      return;
    // If the reduced dimensions include trailing ones, those are reduced first,
    // along rows.
    size_t trailing = 0;
    while (trailing < dims.size() && dims[dims.size() - 1 - trailing] ==
                                         type.getRank() - 1 - int64_t(trailing))
      ++trailing;
    if (trailing > 0 && trailing < dims.size())
      return inTwo(dims.drop_front(dims.size() - trailing));
    if (int64_t(trailing) == type.getRank() && type.getNumElements() > kSmall)
      return whole();
    if (trailing == 0)
      across();
  }

private:
  Value reduce(Value input, ArrayRef<int64_t> along) {
    return nn::ReduceOp::create(b, op.getLoc(), op.getCombiner(), input,
                                b.getDenseI64ArrayAttr(along));
  }
  void replace(Value value) {
    op.getResult().replaceAllUsesWith(value);
    op.erase();
  }

  /// Reduces first along the trailing dimensions `last`, then along all other
  /// reduced dimensions.
  void inTwo(ArrayRef<int64_t> last) {
    Value partial = reduce(op.getInput(), last);
    replace(reduce(partial, dims.drop_back(last.size())));
  }

  /// Reduces a whole tensor to a scalar: first each row, then the results of
  /// the rows.
  void whole() {
    int64_t rows = 1;
    for (int64_t dim = 0; dim + 1 < type.getRank(); ++dim) {
      rows *= type.getDimSize(dim);
      if (rows >= kFewest && rows <= kMost)
        return inTwo(dims.drop_front(dim + 1));
    }
    int64_t elements = type.getNumElements();
    Value input = op.getInput();
    int64_t parts = kWanted;
    while (parts >= kFewest && elements % parts != 0)
      --parts;
    if (parts < kFewest) {
      // No suitable number of rows divides the number of elements, so the
      // tensor is padded with elements that do not change the result.
      parts = kWanted;
      auto line = RankedTensorType::get({elements}, type.getElementType());
      int64_t padded = (elements + parts - 1) / parts * parts;
      input = nn::ReshapeOp::create(b, op.getLoc(), line, input);
      input = nn::PadOp::create(
          b, op.getLoc(),
          RankedTensorType::get({padded}, type.getElementType()), input,
          b.getDenseI64ArrayAttr({0}),
          b.getDenseI64ArrayAttr({padded - elements}),
          b.getF64FloatAttr(identity()));
      elements = padded;
    }
    auto grid =
        RankedTensorType::get({parts, elements / parts}, type.getElementType());
    input = nn::ReshapeOp::create(b, op.getLoc(), grid, input);
    replace(reduce(reduce(input, {1}), {0}));
  }

  /// Reduces a large tensor with few columns along its leading dimensions. The
  /// rows are divided into parts, so that several threads have work.
  void across() {
    int64_t columns = op.getType().getNumElements();
    if (dims.size() < 2 || dims[0] != 0 ||
        type.getNumElements() < 32 * kSmall || columns > 1024)
      return;
    int64_t first = type.getDimSize(0);
    if (first >= 4 && first <= kWanted)
      inTwo(dims.drop_front());
  }

  double identity() {
    double infinity = std::numeric_limits<double>::infinity();
    bool floats = isa<FloatType>(type.getElementType());
    switch (op.getCombiner()) {
    case nn::Combiner::Sum:
      return 0;
    case nn::Combiner::Max:
      return floats ? -infinity : -9.2e18;
    case nn::Combiner::Min:
      return floats ? infinity : 9.2e18;
    }
    llvm_unreachable("all combiners are covered");
  }

  nn::ReduceOp op;
  OpBuilder b;
  RankedTensorType type;
  ArrayRef<int64_t> dims;
};

} // namespace

void kernels::splitReduction(nn::ReduceOp op) { Splitter(op).run(); }
