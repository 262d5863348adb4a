// Executes collectives and rank-dependent operations for all ranks at once.

#include "RankOps.h"

#include "cleave/Dialect/Dist/IR/Exchange.h"

#include "llvm/ADT/TypeSwitch.h"

#include <limits>
#include <map>
#include <set>

using namespace mlir;
using namespace cleave;

namespace {

using Groups = SmallVector<SmallVector<int64_t>>;

/// A tensor viewed as [outer, size of dim, inner].
struct Blocks {
  int64_t outer = 1, size = 1, inner = 1;
  Blocks(ArrayRef<int64_t> shape, int64_t dim) : size(shape[dim]) {
    for (int64_t i = 0; i < dim; ++i)
      outer *= shape[i];
    for (size_t i = dim + 1; i < shape.size(); ++i)
      inner *= shape[i];
  }
  int64_t at(int64_t o, int64_t i, int64_t k) const {
    return (o * size + i) * inner + k;
  }
};

/// Copies `count` slices along `dim`, from slice `from` of `source` to slice
/// `to` of `target`; the other dimensions of the tensors agree.
void copySlices(Tensor &target, int64_t to, const Tensor &source, int64_t from,
                int64_t count, int64_t dim) {
  Blocks t(target.shape(), dim), s(source.shape(), dim);
  for (int64_t o = 0; o < t.outer; ++o)
    for (int64_t i = 0; i < count; ++i)
      for (int64_t k = 0; k < t.inner; ++k) {
        if (target.isFloat())
          target.floats[t.at(o, to + i, k)] =
              source.floats[s.at(o, from + i, k)];
        else
          target.ints[t.at(o, to + i, k)] = source.ints[s.at(o, from + i, k)];
      }
}

/// Copies a rectangular range of elements, given by its first indices `low` and
/// its `sizes`, from `source` to the same position in `tensor`. If `source` is
/// null, sets the range to zeros.
void setBox(Tensor &tensor, const Tensor *source,
            const std::vector<int64_t> &low,
            const std::vector<int64_t> &sizes) {
  int64_t count = llvm::product_of(sizes);
  for (int64_t number = 0; number < count; ++number) {
    int64_t rest = number, at = 0, step = 1;
    for (size_t dim = sizes.size(); dim-- > 0;) {
      at += (low[dim] + rest % sizes[dim]) * step;
      rest /= sizes[dim];
      step *= tensor.shape()[dim];
    }
    if (tensor.isFloat())
      tensor.floats[at] = source ? source->floats[at] : 0;
    else
      tensor.ints[at] = source ? source->ints[at] : 0;
  }
}

template <typename T>
T combine(dist::ReduceKind kind, RankedTensorType type, T a, T b) {
  if (a != a || b != b) // NaN stays
    return a != a ? a : b;
  switch (kind) {
  case dist::ReduceKind::Sum:
    if constexpr (std::is_same_v<T, int64_t>)
      return addIntegers(type.getElementType(), a, b);
    else
      return a + b;
  case dist::ReduceKind::Max:
    return std::max(a, b);
  case dist::ReduceKind::Min:
    return std::min(a, b);
  }
  llvm_unreachable("unknown reduction");
}

void accumulate(Tensor &sum, const Tensor &term, dist::ReduceKind kind) {
  for (int64_t at = 0; at < sum.size(); ++at)
    if (sum.isFloat())
      sum.floats[at] = combine(kind, sum.type, sum.floats[at], term.floats[at]);
    else
      sum.ints[at] = combine(kind, sum.type, sum.ints[at], term.ints[at]);
}

Tensor reduceGroup(dist::ReduceKind kind, const RankTensors &tensors,
                   ArrayRef<int64_t> group) {
  Tensor sum = tensors[group.front()];
  for (int64_t rank : group.drop_front())
    for (int64_t i = 0; i < sum.size(); ++i) {
      if (sum.isFloat())
        sum.floats[i] =
            combine(kind, sum.type, sum.floats[i], tensors[rank].floats[i]);
      else
        sum.ints[i] =
            combine(kind, sum.type, sum.ints[i], tensors[rank].ints[i]);
    }
  return sum;
}

struct RankOp {
  dist::MeshAttr mesh;
  ArrayRef<const RankTensors *> in;
  MutableArrayRef<RankTensors> out;

  template <typename Op> Groups groupsOf(Op op) const {
    return dist::allGroups(mesh, op.getAxes().getAxes());
  }
  int64_t numRanks() const { return out[0].size(); }

  LogicalResult run(dist::AllReduceOp op) {
    for (size_t i = 0; i < in.size(); ++i)
      for (ArrayRef<int64_t> group : groupsOf(op)) {
        Tensor sum = reduceGroup(op.getKind(), *in[i], group);
        for (int64_t rank : group)
          out[i][rank] = sum;
      }
    return success();
  }

  LogicalResult run(dist::AllGatherOp op) {
    for (size_t i = 0; i < in.size(); ++i) {
      int64_t dim = op.getDims()[i], tile = (*in[i])[0].shape()[dim];
      for (ArrayRef<int64_t> group : groupsOf(op))
        for (int64_t rank : group)
          for (auto [place, peer] : llvm::enumerate(group))
            copySlices(out[i][rank], place * tile, (*in[i])[peer], 0, tile,
                       dim);
    }
    return success();
  }

  LogicalResult run(dist::ReduceScatterOp op) {
    for (size_t i = 0; i < in.size(); ++i) {
      int64_t dim = op.getDims()[i], tile = out[i][0].shape()[dim];
      for (ArrayRef<int64_t> group : groupsOf(op)) {
        Tensor sum = reduceGroup(op.getKind(), *in[i], group);
        for (auto [place, rank] : llvm::enumerate(group))
          copySlices(out[i][rank], 0, sum, place * tile, tile, dim);
      }
    }
    return success();
  }

  LogicalResult run(dist::AllToAllOp op) {
    for (size_t i = 0; i < in.size(); ++i) {
      int64_t split = op.getSplitDims()[i], concat = op.getConcatDims()[i];
      int64_t block = out[i][0].shape()[split];
      int64_t tile = (*in[i])[0].shape()[concat];
      for (ArrayRef<int64_t> group : groupsOf(op))
        for (auto [place, rank] : llvm::enumerate(group))
          for (auto [from, peer] : llvm::enumerate(group)) {
            const Tensor &source = (*in[i])[peer];
            SmallVector<int64_t> shape(source.shape());
            shape[split] = block;
            Tensor piece(source.type.clone(shape));
            copySlices(piece, 0, source, place * block, block, split);
            copySlices(out[i][rank], from * tile, piece, 0, tile, concat);
          }
    }
    return success();
  }

  LogicalResult run(dist::CollectivePermuteOp op) {
    for (size_t i = 0; i < in.size(); ++i)
      for (ArrayRef<int64_t> group : groupsOf(op))
        for (size_t pair = 0; pair + 1 < op.getPairs().size(); pair += 2)
          out[i][group[op.getPairs()[pair + 1]]] =
              (*in[i])[group[op.getPairs()[pair]]];
    return success();
  }

  LogicalResult run(dist::WindowOp op) {
    int64_t dim = op.getDim(), tile = (*in[0])[0].shape()[dim];
    for (ArrayRef<int64_t> group : groupsOf(op))
      for (auto [place, rank] : llvm::enumerate(group))
        for (int64_t i = 0; i < out[0][rank].shape()[dim]; ++i) {
          int64_t index = int64_t(op.getBase()) +
                          int64_t(place) * int64_t(op.getStep()) +
                          i * int64_t(op.getStride());
          if (index >= 0 && index < int64_t(op.getSize()))
            copySlices(out[0][rank], i, (*in[0])[group[index / tile]],
                       index % tile, 1, dim);
        }
    return success();
  }

  /// Executes an exchange: assembles the whole tensor of each group from tiles,
  /// and splits it again. Which rectangular ranges of elements the ranks send
  /// to each other only matters where the result is partial: it determines
  /// which rank's partial sum gets an element.
  LogicalResult run(dist::ExchangeOp op) {
    for (size_t i = 0; i < in.size(); ++i) {
      auto from = cast<dist::ShardingAttr>(op.getFrom()[i]);
      auto to = cast<dist::ShardingAttr>(op.getTo()[i]);
      auto type =
          cast<RankedTensorType>(cast<TypeAttr>(op.getGlobal()[i]).getValue());
      program::Exchange boxes =
          dist::describeExchange(mesh, op.getAxes().getAxes(), from, to,
                                 type.getShape(), op.getRounds());
      for (ArrayRef<int64_t> group : groupsOf(op)) {
        // The whole tensor for each index over the partial axes, assembled from
        // tiles. Several ranks may hold the same tile.
        std::map<int64_t, Tensor> wholes;
        for (int64_t rank : group) {
          int64_t term = dist::groupIndex(mesh, from.getPartial(), rank);
          auto [at, isNew] = wholes.try_emplace(term, type);
          if (isNew)
            poison(at->second);
          pasteTile(at->second, (*in[i])[rank], mesh, from, rank);
        }
        // If the result is partial too, a rectangular range of it may be the
        // sum of only some of the partial tensors. The sum over each such set
        // of tensors is computed once.
        std::map<std::set<int64_t>, Tensor> sums;
        auto sumOf = [&](const std::set<int64_t> &terms) -> const Tensor & {
          auto [at, isNew] = sums.try_emplace(terms, wholes.at(*terms.begin()));
          if (isNew)
            for (int64_t term : llvm::drop_begin(terms))
              accumulate(at->second, wholes.at(term), from.getPartialKind());
          return at->second;
        };
        std::set<int64_t> all;
        for (auto &[term, whole] : wholes)
          all.insert(term);
        for (int64_t rank : group)
          cutTile(out[i][rank], sumOf(all), mesh, to, rank);
        if (boxes.toPartial.empty())
          continue;
        for (const program::ExchangePiece &piece :
             dist::planExchange(mesh, boxes, group).pieces()) {
          Tensor &result = out[i][group[piece.receiver]];
          std::set<int64_t> taken;
          for (int32_t sender : piece.senders)
            taken.insert(
                dist::groupIndex(mesh, from.getPartial(), group[sender]));
          if (taken.empty()) {
            setBox(result, nullptr, piece.dstAt, piece.sizes);
          } else if (piece.round == 0 && taken != all) {
            Tensor tile = result;
            cutTile(tile, sumOf(taken), mesh, to, group[piece.receiver]);
            setBox(result, &tile, piece.dstAt, piece.sizes);
          }
        }
      }
    }
    return success();
  }

  LogicalResult run(dist::SliceOp op) {
    int64_t dim = op.getDim(), tile = out[0][0].shape()[dim];
    for (int64_t rank = 0; rank < numRanks(); ++rank) {
      int64_t first =
          dist::groupIndex(mesh, op.getAxes().getAxes(), rank) * tile;
      int64_t valid =
          std::clamp<int64_t>((*in[0])[rank].shape()[dim] - first, 0, tile);
      poison(out[0][rank]);
      copySlices(out[0][rank], 0, (*in[0])[rank], first, valid, dim);
    }
    return success();
  }

  LogicalResult run(dist::AxisIndexOp op) {
    for (int64_t rank = 0; rank < numRanks(); ++rank)
      out[0][rank].ints[0] =
          dist::groupIndex(mesh, op.getAxes().getAxes(), rank);
    return success();
  }

  /// Executes an exchange of rows. Rows of the result that no rank sends are
  /// set to NaN, since no operation may read them.
  LogicalResult run(dist::AllToAllVOp op) {
    const RankTensors &rows = *in[0], &sent = *in[1], &received = *in[2];
    Blocks blocks(rows[0].shape(), 0);
    int64_t row = blocks.inner / rows[0].shape()[1];
    for (ArrayRef<int64_t> group : groupsOf(op))
      for (auto [place, rank] : llvm::enumerate(group)) {
        Tensor &result = out[0][rank];
        std::fill(result.floats.begin(), result.floats.end(),
                  std::numeric_limits<double>::quiet_NaN());
        for (auto [other, peer] : llvm::enumerate(group)) {
          int64_t count = sent[peer].ints[place];
          if (count != received[rank].ints[other])
            return op.emitOpError("rank ")
                   << peer << " sends " << count << " rows to rank " << rank
                   << ", which expects " << received[rank].ints[other];
          int64_t from = blocks.at(0, place, 0), to = blocks.at(0, other, 0);
          for (int64_t i = 0; i < count * row; ++i)
            if (result.isFloat())
              result.floats[to + i] = rows[peer].floats[from + i];
            else
              result.ints[to + i] = rows[peer].ints[from + i];
        }
      }
    return success();
  }

  LogicalResult run(dist::PlanRowsOp op) {
    int64_t rounds = out[0][0].shape()[0], ranks = out[0][0].shape()[1],
            room = out[0][0].shape()[2], rows = out[1][0].shape()[0];
    for (int64_t rank = 0; rank < numRanks(); ++rank) {
      std::vector<int64_t> &sources = out[0][rank].ints,
                           &places = out[1][rank].ints,
                           &sent = out[2][rank].ints,
                           &counts = out[3][rank].ints;
      for (std::vector<int64_t> *list : {&sources, &places, &sent})
        std::fill(list->begin(), list->end(), -1);
      std::fill(counts.begin(), counts.end(), 0);
      for (int64_t row = 0; row < rows; ++row) {
        int64_t id = (*in[0])[rank].ints[row];
        int64_t tile = static_cast<int64_t>(op.getTile()), to = id / tile;
        if (id < 0 || to >= ranks)
          continue;
        int64_t all = 0;
        for (int64_t round = 0; round < rounds; ++round)
          all += counts[to * rounds + round];
        int64_t round = all / room;
        places[row] = (round * ranks + to) * room + all % room;
        ++counts[to * rounds + round];
        sources[places[row]] = row;
        sent[places[row]] = id - to * tile;
      }
    }
    return success();
  }

  LogicalResult run(dist::TileOffsetOp op) {
    for (int64_t rank = 0; rank < numRanks(); ++rank)
      out[0][rank].ints[0] =
          dist::groupIndex(mesh, op.getAxes().getAxes(), rank) *
          static_cast<int64_t>(op.getTile());
    return success();
  }

  LogicalResult run(dist::SortRowsOp op) {
    auto groups = static_cast<int64_t>(op.getGroups());
    for (int64_t rank = 0; rank < numRanks(); ++rank) {
      const std::vector<int64_t> &ids = (*in[0])[rank].ints;
      auto chosen = [&](int64_t row) {
        return ids[row] >= 0 && ids[row] < groups ? ids[row] : groups;
      };
      std::vector<int64_t> &order = out[0][rank].ints;
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return chosen(a) < chosen(b);
      });
      for (size_t place = 0; place < order.size(); ++place) {
        int64_t row = order[place];
        out[1][rank].ints[row] = place;
        out[2][rank].ints[place] = chosen(row) < groups ? ids[row] : -1;
      }
    }
    return success();
  }

  LogicalResult run(dist::KeepFirstOp op) {
    for (int64_t rank = 0; rank < numRanks(); ++rank)
      if (dist::groupIndex(mesh, op.getAxes().getAxes(), rank) == 0)
        out[0][rank] = (*in[0])[rank];
    return success();
  }

  LogicalResult run(dist::ConstrainOp) {
    out[0] = *in[0];
    return success();
  }

  /// Does nothing: operations under a false condition are executed anyway, and
  /// nothing reads their results.
  LogicalResult run(dist::ConditionOp) { return success(); }
};

} // namespace

LogicalResult cleave::interpretRankOp(Operation *op, dist::MeshAttr mesh,
                                      ArrayRef<const RankTensors *> operands,
                                      MutableArrayRef<RankTensors> results) {
  RankOp rankOp{mesh, operands, results};
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<dist::AllReduceOp, dist::AllGatherOp, dist::ReduceScatterOp,
            dist::AllToAllOp, dist::AllToAllVOp, dist::PlanRowsOp,
            dist::SortRowsOp, dist::CollectivePermuteOp, dist::WindowOp,
            dist::ExchangeOp, dist::SliceOp, dist::AxisIndexOp,
            dist::TileOffsetOp, dist::KeepFirstOp, dist::ConstrainOp,
            dist::ConditionOp>([&](auto known) { return rankOp.run(known); })
      .Default([](Operation *unknown) {
        return unknown->emitOpError("has no reference semantics");
      });
}
