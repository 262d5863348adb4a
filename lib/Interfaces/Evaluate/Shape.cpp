// Reference semantics of data movement and indexing.

#include "Model.h"

#include <cmath>

using namespace mlir;
using namespace cleave;
using namespace cleave::evaluate;

static void broadcast(nn::BroadcastOp op, Operands in, Results out) {
  forEachIndex(out[0].shape(), [&](ArrayRef<int64_t> index, int64_t flat) {
    Index source;
    for (int64_t dim : op.getDims())
      source.push_back(index[dim]);
    copyElement(out[0], flat, *in[0], flatten(in[0]->shape(), source));
  });
}

static void reshape(nn::ReshapeOp, Operands in, Results out) {
  out[0].floats = in[0]->floats;
  out[0].ints = in[0]->ints;
}

static void transpose(nn::TransposeOp op, Operands in, Results out) {
  forEachIndex(out[0].shape(), [&](ArrayRef<int64_t> index, int64_t flat) {
    Index source(index.size());
    for (auto [dim, from] : llvm::enumerate(op.getPermutation()))
      source[from] = index[dim];
    copyElement(out[0], flat, *in[0], flatten(in[0]->shape(), source));
  });
}

static void slice(nn::SliceOp op, Operands in, Results out) {
  forEachIndex(out[0].shape(), [&](ArrayRef<int64_t> index, int64_t flat) {
    Index source;
    for (auto [dim, i] : llvm::enumerate(index))
      source.push_back(op.getOffsets()[dim] + i * op.getStrides()[dim]);
    copyElement(out[0], flat, *in[0], flatten(in[0]->shape(), source));
  });
}

static void concat(nn::ConcatOp op, Operands in, Results out) {
  int64_t dim = op.getDim(), offset = 0;
  for (const Tensor *input : in) {
    forEachIndex(input->shape(), [&](ArrayRef<int64_t> index, int64_t flat) {
      Index target(index);
      target[dim] += offset;
      copyElement(out[0], flatten(out[0].shape(), target), *input, flat);
    });
    offset += input->shape()[dim];
  }
}

static void pad(nn::PadOp op, Operands in, Results out) {
  double value = op.getValue().convertToDouble();
  std::fill(out[0].floats.begin(), out[0].floats.end(), value);
  std::fill(out[0].ints.begin(), out[0].ints.end(), std::llround(value));
  forEachIndex(in[0]->shape(), [&](ArrayRef<int64_t> index, int64_t flat) {
    Index target(index);
    for (auto [dim, low] : llvm::enumerate(op.getLow()))
      target[dim] += low;
    copyElement(out[0], flatten(out[0].shape(), target), *in[0], flat);
  });
}

static void iota(nn::IotaOp op, Operands, Results out) {
  forEachIndex(out[0].shape(), [&](ArrayRef<int64_t> index, int64_t flat) {
    if (out[0].isFloat())
      out[0].floats[flat] = index[op.getDim()];
    else
      out[0].ints[flat] = index[op.getDim()];
  });
}

/// Calls `visit(position in the table, position in the gathered tensor)` for
/// each gathered element whose index is inside the table.
template <typename Visit>
static void forEachGathered(ArrayRef<int64_t> table, const Tensor &indices,
                            ArrayRef<int64_t> gathered, int64_t dim,
                            Visit visit) {
  int64_t indexRank = indices.rank();
  forEachIndex(gathered, [&](ArrayRef<int64_t> index, int64_t flat) {
    int64_t row =
        indices.ints[flatten(indices.shape(), index.slice(dim, indexRank))];
    if (row < 0 || row >= table[dim])
      return;
    Index source(index.take_front(dim));
    source.push_back(row);
    llvm::append_range(source, index.drop_front(dim + indexRank));
    visit(flatten(table, source), flat);
  });
}

static void gather(nn::GatherOp op, Operands in, Results out) {
  forEachGathered(
      in[0]->shape(), *in[1], out[0].shape(), op.getDim(),
      [&](int64_t from, int64_t to) { copyElement(out[0], to, *in[0], from); });
}

/// An index out of range is reported at the operation's location.
struct CheckIndexModel
    : EvaluableInterface::ExternalModel<CheckIndexModel, nn::CheckIndexOp> {
  LogicalResult evaluate(Operation *op, Operands in, Results out) const {
    int64_t rows = cast<nn::CheckIndexOp>(op).getRows();
    for (int64_t index : in[0]->ints)
      if (index < 0 || index >= rows)
        return op->emitError("index ")
               << index << " is beyond the " << rows << " rows of its table";
    out[0].ints = in[0]->ints;
    return success();
  }
};

static void scatterAdd(nn::ScatterAddOp op, Operands in, Results out) {
  forEachGathered(out[0].shape(), *in[0], in[1]->shape(), op.getDim(),
                  [&](int64_t to, int64_t from) {
                    out[0].floats[to] += in[1]->floats[from];
                  });
}

void cleave::evaluate::attachShape(MLIRContext *c) {
  attach<nn::BroadcastOp, broadcast>(c);
  attach<nn::ReshapeOp, reshape>(c);
  attach<nn::TransposeOp, transpose>(c);
  attach<nn::SliceOp, slice>(c);
  attach<nn::ConcatOp, concat>(c);
  attach<nn::PadOp, pad>(c);
  attach<nn::IotaOp, iota>(c);
  attach<nn::GatherOp, gather>(c);
  nn::CheckIndexOp::attachInterface<CheckIndexModel>(*c);
  attach<nn::ScatterAddOp, scatterAdd>(c);
}
