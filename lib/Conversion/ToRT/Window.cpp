// Expands dist.window, a halo exchange of a sharded dimension, to permutations
// and index arithmetic. The window is the range of elements that a rank needs.
// The exchange takes several rounds. In each round, a rank sends a range of its
// elements to at most one other rank. The received ranges are put together to
// the window by gathers at rank-dependent offsets.

#include "SelectLibrary.h"

#include "cleave/Dialect/Dist/IR/Sharding.h"
#include "cleave/Support/ValueUtils.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;

namespace {

/// One round of the exchange, which is one permutation: each rank of the group
/// sends to at most one rank and receives from at most one rank. `pieces` are
/// the parts of the ranks' windows that this round sends.
struct Round {
  SmallVector<WindowPiece> pieces;
  bool isLocal = false;
  int64_t low = 0, high = 0; // the range of the sender's tile that is sent
};

/// Sets `low` and `high` of a round of the exchange: the smallest range of
/// elements of the sender's tile that contains everything that any rank sends
/// in this round.
void bound(Round &round, int64_t stride) {
  round.low = std::numeric_limits<int64_t>::max();
  round.high = 0;
  for (const WindowPiece &piece : round.pieces) {
    int64_t last = piece.sourceBegin + (piece.count - 1) * stride;
    round.low = std::min({round.low, piece.sourceBegin, last});
    round.high = std::max({round.high, piece.sourceBegin + 1, last + 1});
  }
}

SmallVector<Round> roundsOf(WindowOp op, int64_t members) {
  SmallVector<Round> rounds;
  SmallVector<llvm::BitVector> sends, receives;
  for (const WindowPiece &piece : windowPieces(op, members)) {
    bool isLocal = piece.source == piece.target;
    size_t at = 0;
    while (at < rounds.size() &&
           (rounds[at].isLocal != isLocal || sends[at].test(piece.source) ||
            receives[at].test(piece.target)))
      ++at;
    if (at == rounds.size()) {
      rounds.emplace_back().isLocal = isLocal;
      sends.emplace_back(members);
      receives.emplace_back(members);
    }
    rounds[at].pieces.push_back(piece);
    sends[at].set(piece.source);
    receives[at].set(piece.target);
  }
  for (Round &round : rounds)
    bound(round, op.getStride());
  return rounds;
}

class Expansion {
public:
  Expansion(WindowOp op, int64_t members)
      : op(op), members(members), dim(op.getDim()), b(op), loc(op.getLoc()),
        type(typeOf(op.getResults()[0])),
        scalar(RankedTensorType::get({}, b.getI64Type())),
        row(RankedTensorType::get({type.getDimSize(dim)}, b.getI64Type())) {}

  Value run() {
    place =
        AxisIndexOp::create(b, loc, scalar, op.getMeshAttr(), op.getAxesAttr());
    position = nn::IotaOp::create(b, loc, row, 0);
    Value result = nn::createSplat(b, loc, type, 0.0);
    for (const Round &round : roundsOf(op, members))
      result = add(round, result);
    return result;
  }

private:
  /// Returns the number that `table` has for the executing rank, broadcast
  /// along the window. `table` has one number for each rank of the group.
  Value mine(ArrayRef<int64_t> table) {
    auto tableType = RankedTensorType::get({members}, b.getI64Type());
    Value numbers = arith::ConstantOp::create(
        b, loc, DenseElementsAttr::get(tableType, table));
    Value number = nn::GatherOp::create(b, loc, scalar, numbers, place, 0);
    return nn::BroadcastOp::create(b, loc, row, number, ArrayRef<int64_t>());
  }

  Value add(const Round &round, Value result) {
    Value piece = op.getInputs()[0];
    auto have = typeOf(piece);
    SmallVector<int64_t> offsets(have.getRank(), 0), ones(have.getRank(), 1),
        shape(have.getShape());
    offsets[dim] = round.low;
    shape[dim] = round.high - round.low;
    if (shape[dim] != have.getDimSize(dim))
      piece = nn::SliceOp::create(b, loc, have.clone(shape), piece, offsets,
                                  shape, ones);
    SmallVector<int64_t> pairs, shift(members, 0), begin(members, 0),
        end(members, 0);
    for (const WindowPiece &part : round.pieces) {
      pairs.append({part.source, part.target});
      shift[part.target] = part.sourceBegin - round.low -
                           part.targetBegin * int64_t(op.getStride());
      begin[part.target] = part.targetBegin;
      end[part.target] = part.targetBegin + part.count;
    }
    if (!round.isLocal)
      piece = CollectivePermuteOp::create(
                  b, loc, TypeRange{piece.getType()}, ValueRange{piece},
                  b.getDenseI64ArrayAttr(pairs), op.getMeshAttr(), op.getAxes(),
                  op.getPurposeAttr())
                  ->getResult(0);
    auto compare = [&](arith::CmpIPredicate predicate, Value bound) -> Value {
      return arith::CmpIOp::create(b, loc, predicate, position, bound);
    };
    Value inside = arith::AndIOp::create(
        b, loc, compare(arith::CmpIPredicate::sge, mine(begin)),
        compare(arith::CmpIPredicate::slt, mine(end)));
    Value index = arith::AddIOp::create(
        b, loc,
        arith::MulIOp::create(
            b, loc, position,
            nn::createSplat(b, loc, row, double(int64_t(op.getStride()))))
            .getResult(),
        mine(shift));
    Value read = nn::GatherOp::create(b, loc, type, piece, index, dim);
    Value mask = nn::BroadcastOp::create(b, loc, type.clone(b.getI1Type()),
                                         inside, ArrayRef<int64_t>{dim});
    return arith::SelectOp::create(b, loc, mask, read, result);
  }

  WindowOp op;
  int64_t members, dim;
  OpBuilder b;
  Location loc;
  RankedTensorType type, scalar, row;
  Value place, position;
};

} // namespace

LogicalResult cleave::expandWindow(WindowOp op) {
  MeshOp mesh = MeshOp::lookup(op, op.getMeshAttr());
  if (!mesh)
    return op.emitOpError("there is no mesh ") << op.getMeshAttr();
  Value window =
      Expansion(op, axesSize(mesh.getMesh(), op.getAxes().getAxes())).run();
  op->getResult(0).replaceAllUsesWith(window);
  op->erase();
  return success();
}
