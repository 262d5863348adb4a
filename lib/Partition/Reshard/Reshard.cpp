//===- Reshard.cpp - emits the moves of a reshard -------------------------===//
//
// Emits the moves of a reshard. A dimension of N elements split n ways has
// tiles of ceil(N / n) elements, so the last tiles may end in padding. The
// operands of collectives are padded to equal tiles, and their results are cut.
// An exchange moves rectangular ranges of elements and needs neither padding
// nor cutting.
//
//===----------------------------------------------------------------------===//

#include "cleave/Partition/Reshard/Reshard.h"
#include "ReshardCost.h"
#include "cleave/Dialect/Dist/IR/Padding.h"

#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;
using namespace cleave::partition;

namespace {

/// Pads a dimension at its end, or cuts it, to `size`.
Value resize(OpBuilder &builder, Location loc, Value value, int64_t dim,
             int64_t size) {
  auto type = typeOf(value);
  int64_t have = type.getDimSize(dim);
  if (have == size)
    return value;
  SmallVector<int64_t> shape(type.getShape()), zeros(type.getRank(), 0);
  shape[dim] = size;
  if (size > have) {
    SmallVector<int64_t> high(zeros);
    high[dim] = size - have;
    auto pad = nn::PadOp::create(builder, loc, type.clone(shape), value, zeros,
                                 high, APFloat(0.0));
    pad->setAttr(kTilePaddingAttrName, builder.getUnitAttr());
    return pad;
  }
  SmallVector<int64_t> ones(type.getRank(), 1);
  return nn::SliceOp::create(builder, loc, type.clone(shape), value, zeros,
                             shape, ones);
}

/// Places the tile at its position in a tensor of zeros, by a gather whose
/// indices outside the tile read zeros.
Value embed(OpBuilder &builder, Location loc, const MeshAxes &mesh,
            RankedTensorType want, Value local, const Move &move) {
  int64_t dim = move.dim, size = want.getDimSize(dim);
  int64_t tile = typeOf(local).getDimSize(dim);
  auto scalar = RankedTensorType::get({}, builder.getI64Type());
  auto index = RankedTensorType::get({size}, builder.getI64Type());
  Value first = TileOffsetOp::create(builder, loc, scalar,
                                     builder.getI64IntegerAttr(tile),
                                     mesh.name(), mesh.list(move.axes));
  Value place =
      nn::IotaOp::create(builder, loc, index, builder.getI64IntegerAttr(0));
  Value offsets = builder.createOrFold<nn::BroadcastOp>(loc, index, first,
                                                        ArrayRef<int64_t>());
  Value shifted = arith::SubIOp::create(builder, loc, place, offsets);
  return nn::GatherOp::create(builder, loc, want, local, shifted, dim);
}

} // namespace

int64_t cleave::partition::sentBytes(const MeshAxes &mesh,
                                     ArrayRef<int64_t> shape,
                                     int64_t elementBytes, const Layout &from,
                                     ArrayRef<Move> moves) {
  int64_t sent = 0;
  Layout at = from;
  for (const Move &move : moves) {
    auto bytes = [&](const Layout &layout) {
      int64_t elements = elementBytes;
      for (int64_t extent : mesh.tile(layout, shape))
        elements *= extent;
      return elements;
    };
    int64_t n = mesh.size(move.axes);
    switch (move.kind) {
    case Move::AllReduce:
      sent += 2 * (n - 1) * bytes(at) / n;
      break;
    case Move::ReduceScatter:
      sent += (n - 1) * bytes(move.after);
      break;
    case Move::AllGather:
      sent += (n - 1) * bytes(at);
      break;
    case Move::AllToAll:
      sent += (n - 1) * bytes(at) / n;
      break;
    case Move::Permute:
      sent += bytes(at);
      break;
    case Move::Exchange:
      sent += elementBytes * estimateExchange(mesh, shape, at, move.after,
                                              setOf(move.axes), move.rounds)
                                 .mostSent;
      break;
    case Move::KeepFirst:
    case Move::Slice:
    case Move::Embed:
      break;
    }
    at = move.after;
  }
  return sent;
}

/// Returns the (source, target) pairs of a permutation, as indices of ranks
/// within their group over `axes`.
static SmallVector<int64_t> permutation(const MeshAxes &mesh,
                                        const Layout &from, const Layout &to,
                                        ArrayRef<Axis> axes) {
  // The tile that a rank holds follows from the coordinates of its group index
  // on the axes.
  int64_t count = mesh.size(axes);
  auto tileOf = [&](const Layout &layout, int64_t index) {
    SmallVector<int64_t, 8> coordinate(64, 0);
    for (Axis axis : llvm::reverse(axes)) {
      coordinate[axis] = index % mesh.size(axis);
      index /= mesh.size(axis);
    }
    int64_t tile = 0;
    for (const Axes &dim : layout.dims)
      for (Axis axis : dim)
        if (llvm::is_contained(axes, axis))
          tile = tile * mesh.size(axis) + coordinate[axis];
    return tile;
  };
  SmallVector<int64_t> holder(count), pairs;
  for (int64_t index = 0; index < count; ++index)
    holder[tileOf(from, index)] = index;
  for (int64_t index = 0; index < count; ++index) {
    pairs.push_back(holder[tileOf(to, index)]);
    pairs.push_back(index);
  }
  return pairs;
}

Value cleave::partition::emitReshard(OpBuilder &builder, Location loc,
                                     const MeshAxes &mesh,
                                     RankedTensorType type, Value local,
                                     const Layout &from, ArrayRef<Move> moves,
                                     Purpose purpose) {
  MLIRContext *context = builder.getContext();
  auto purposeAttr = PurposeAttr::get(context, purpose);
  Layout at = from;
  // Sets an attribute on a new collective: how many bytes of its payload are
  // padding. The payload is a tile in `layout`.
  auto note = [&](const Layout &layout, Value payload, Operation *collective) {
    notePadding(collective, mesh, layout, type, typeOf(payload));
    return collective->getResult(0);
  };
  for (const Move &move : moves) {
    auto have = typeOf(local);
    RankedTensorType want = mesh.tile(move.after, type);
    AxisListAttr axes = mesh.list(move.axes);
    auto kind = ReduceKindAttr::get(context, move.reduce);
    auto dims = builder.getDenseI64ArrayAttr({move.dim});
    int64_t n = mesh.size(move.axes);
    switch (move.kind) {
    case Move::AllReduce:
      local = note(at, local,
                   AllReduceOp::create(builder, loc, TypeRange{have}, kind,
                                       ValueRange{local}, mesh.name(), axes,
                                       purposeAttr));
      break;
    case Move::ReduceScatter:
      local =
          resize(builder, loc, local, move.dim, n * want.getDimSize(move.dim));
      local = note(at, local,
                   ReduceScatterOp::create(builder, loc, TypeRange{want}, kind,
                                           ValueRange{local}, dims, mesh.name(),
                                           axes, purposeAttr));
      break;
    case Move::KeepFirst:
      // For a maximum or minimum, reducing equal values changes nothing.
      if (move.reduce == ReduceKind::Sum)
        local =
            KeepFirstOp::create(builder, loc, have, local, mesh.name(), axes);
      break;
    case Move::Embed:
      local = embed(builder, loc, mesh, want, local, move);
      break;
    case Move::Exchange:
      local = ExchangeOp::create(
                  builder, loc, TypeRange{want}, ValueRange{local},
                  builder.getArrayAttr({mesh.sharding(at)}),
                  builder.getArrayAttr({mesh.sharding(move.after)}),
                  builder.getTypeArrayAttr({type}), mesh.name(), axes,
                  purposeAttr, builder.getI64IntegerAttr(move.rounds))
                  ->getResult(0);
      break;
    case Move::AllToAll: {
      local =
          resize(builder, loc, local, move.dim, n * want.getDimSize(move.dim));
      SmallVector<int64_t> shape(want.getShape());
      shape[move.concat] = n * have.getDimSize(move.concat);
      local =
          note(at, local,
               AllToAllOp::create(builder, loc, TypeRange{type.clone(shape)},
                                  ValueRange{local}, dims,
                                  builder.getDenseI64ArrayAttr({move.concat}),
                                  mesh.name(), axes, purposeAttr));
      local = resize(builder, loc, local, move.concat,
                     want.getDimSize(move.concat));
      break;
    }
    case Move::AllGather: {
      SmallVector<int64_t> shape(have.getShape());
      shape[move.dim] *= n;
      auto gather = AllGatherOp::create(
          builder, loc, TypeRange{type.clone(shape)}, ValueRange{local}, dims,
          mesh.name(), axes, purposeAttr);
      local = note(move.after, gather->getResult(0), gather);
      local = resize(builder, loc, local, move.dim, want.getDimSize(move.dim));
      break;
    }
    case Move::Slice:
      local = dist::SliceOp::create(builder, loc, want, local,
                                    builder.getI64IntegerAttr(move.dim),
                                    mesh.name(), axes);
      break;
    case Move::Permute:
      local = note(at, local,
                   CollectivePermuteOp::create(
                       builder, loc, TypeRange{have}, ValueRange{local},
                       builder.getDenseI64ArrayAttr(
                           permutation(mesh, at, move.after, move.axes)),
                       mesh.name(), axes, purposeAttr));
      break;
    }
    at = move.after;
  }
  return local;
}
