//===- ChunkProducts.cpp - dist-chunk-products ----------------------------===//
//
// On per-rank programs: splits a product into pieces, so that one piece is
// computed while the operand of the next one is gathered, or while the result
// of the previous one is reduced.
//
//===----------------------------------------------------------------------===//

#include "cleave/Cost/LinkModel.h"
#include "cleave/Interfaces/Condition.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Interfaces/StageAttrs.h"
#include "cleave/Partition/Passes.h"
#include "cleave/Partition/Reshard/Reshard.h"
#include "cleave/Support/ValueUtils.h"

#include "llvm/ADT/SetVector.h"

namespace cleave {
#define GEN_PASS_DEF_DISTCHUNKPRODUCTSPASS
#include "cleave/Partition/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::dist;

namespace {

/// Returns the outermost dimension with more than one element. A piece of the
/// tensor along this dimension is contiguous. Returns -1 if there is none, or
/// if it is in `taken`.
int64_t outermost(RankedTensorType type, ArrayRef<int64_t> taken) {
  for (auto [dim, size] : llvm::enumerate(type.getShape()))
    if (size > 1)
      return llvm::is_contained(taken, int64_t(dim)) ? -1 : int64_t(dim);
  return -1;
}

RankedTensorType pieceOf(RankedTensorType type, int64_t dim, int64_t count) {
  SmallVector<int64_t> shape(type.getShape());
  shape[dim] /= count;
  return type.clone(shape);
}

/// A product that is cut into pieces along one factor. `result` and `operands`
/// have the dimension of this factor in the result and in each operand; -1 for
/// an operand without the factor.
struct Cut {
  nn::EinsumOp product;
  int64_t result = -1;
  SmallVector<int64_t, 2> operands;
};

/// Returns how to cut a product along a factor of its result and of some
/// operand. Pieces must be contiguous in all of these tensors; otherwise
/// returns nullopt.
std::optional<Cut> cutAlong(nn::EinsumOp product, const ShardingRule &rule,
                            int64_t factor) {
  auto dimOf = [&](const TensorFactors &dims) -> int64_t {
    for (auto [dim, factors] : llvm::enumerate(dims))
      if (factors == DimFactors{factor})
        return dim;
    return -1;
  };
  Cut cut{product, dimOf(rule.results[0]), {}};
  for (const TensorFactors &dims : rule.operands)
    cut.operands.push_back(dimOf(dims));
  auto isContiguous = [](Value value, int64_t dim) {
    return dim < 0 || dim == outermost(typeOf(value), {});
  };
  bool fits = rule.factors[factor].kind == FactorKind::PassThrough &&
              cut.result >= 0 && isContiguous(product.getResult(), cut.result);
  for (auto [operand, dim] :
       llvm::zip_equal(product->getOperands(), cut.operands))
    fits &= isContiguous(operand, dim);
  if (!fits)
    return std::nullopt;
  return cut;
}

/// Returns the only factor of a dimension; -1 if the dimension has several
/// factors or none.
int64_t factorOf(const DimFactors &factors) {
  return factors.size() == 1 ? factors[0] : -1;
}

/// Returns whether only fused kernels read the value, perhaps through views.
/// They can read the pieces without concatenating them.
bool isFused(Value value) {
  return llvm::all_of(value.getUsers(), [](Operation *user) {
    auto lowering = dyn_cast<LoweringInterface>(user);
    if (!lowering)
      return false;
    if (lowering.getKernelClass() == KernelClass::View)
      return llvm::all_of(user->getResults(),
                          [](Value view) { return isFused(view); });
    return lowering.getKernelClass() == KernelClass::Elementwise;
  });
}

/// Returns the bytes that are moved to concatenate the pieces of a value: one
/// read and one write, or none if its readers are fused kernels.
double bytesToJoin(Value value) {
  return isFused(value) ? 0 : 2 * double(bytesOf(value.getType()));
}

class Chunker {
public:
  Chunker(const MeshAxes &mesh, const Cluster &cluster,
          const cost::LinkModel &links)
      : mesh(mesh), cluster(cluster), links(links) {}

  void run(Block &block) {
    // Sums up the seconds of products that can run while a collective
    // communicates (see rt-overlap). These are weight gradients, and any other
    // product whose result is not needed, directly or indirectly, by another
    // product or by a collective on activations. `leads` has all operations
    // whose results are needed in this way.
    llvm::SmallPtrSet<Operation *, 32> leads;
    for (Operation &op : llvm::reverse(block))
      if (llvm::any_of(op.getUsers(), [&](Operation *user) {
            auto collective = dyn_cast<CollectiveOpInterface>(user);
            return leads.contains(user) || isa<nn::EinsumOp>(user) ||
                   (collective &&
                    collective.getPurpose() == Purpose::Activation);
          }))
        leads.insert(&op);
    llvm::DenseMap<Attribute, double> spareOf; // by schedule action
    SmallVector<CollectiveOpInterface> waited;
    for (Operation &op : block) {
      double &spare = spareOf[op.getAttr(kActionAttr)];
      if (auto product = dyn_cast<nn::EinsumOp>(op);
          product && !leads.contains(&op))
        spare += secondsOf(product, 1);
      auto collective = dyn_cast<CollectiveOpInterface>(op);
      if (!collective || op.getNumOperands() != 1 || op.getNumResults() != 1 ||
          collective.getPurpose() != Purpose::Activation ||
          op.hasAttr(kWhenAttrName))
        continue;
      double seconds = secondsOf(collective, 1);
      if (spare >= seconds)
        spare -= seconds;
      else
        waited.push_back(collective);
    }
    for (CollectiveOpInterface collective : waited)
      if (isa<AllGatherOp>(*collective))
        cutGather(collective);
      else if (isa<AllReduceOp, ReduceScatterOp>(*collective))
        cutSum(collective);
  }

private:
  /// Returns the seconds of a collective on one of `count` equal pieces of its
  /// operand.
  double secondsOf(CollectiveOpInterface collective, int64_t count) const {
    AxisSet group = setOf(mesh.decompose(collective.getAxes().getAxes()));
    double bytes = double(collective.getPayloadBytes()) / count;
    return isa<AllReduceOp>(*collective) ? links.allReduce(group, bytes)
                                         : links.allGather(group, bytes);
  }

  double secondsOf(nn::EinsumOp product, int64_t count) const {
    auto model = dyn_cast<CostInterface>(product.getOperation());
    return model ? cluster.matmulSeconds(double(model.getFlops()) / count) : 0;
  }

  /// Returns the number of pieces with which the collective and its products
  /// are fastest; 1 if splitting is not worthwhile. `cuts` has one product, or
  /// all products that read one gathered value. `bytes` is the memory traffic
  /// of concatenating the pieces.
  int64_t choose(CollectiveOpInterface collective, ArrayRef<Cut> cuts,
                 int64_t size, bool isGather, double bytes) const {
    /// Splitting must gain at least the share kGain of the collective's time,
    /// and the pieces may together take at most kLatency times as long as the
    /// unsplit collective.
    constexpr double kGain = 0.1, kLatency = 1.5;
    const double whole = secondsOf(collective, 1);
    auto computes = [&](int64_t count) {
      double seconds = 0;
      for (const Cut &cut : cuts)
        seconds += secondsOf(cut.product, count);
      return seconds;
    };
    double least = computes(1) + (1 - kGain) * whole;
    int64_t best = 1;
    for (int64_t count : {2, 4}) {
      double message = secondsOf(collective, count);
      if (size % count != 0 || message * count > kLatency * whole)
        continue;
      double piece = computes(count) * (1 + cluster.contention), first = 0,
             second = 0;
      for (int64_t i = 0; i < count; ++i) {
        first += isGather ? message : piece;
        second = std::max(first, second) + (isGather ? piece : message);
      }
      second += bytes / cluster.memoryBytesPerSecond;
      if (second < least) {
        least = second;
        best = count;
      }
    }
    return best;
  }

  static Value slice(OpBuilder &b, Operation *like, Value value, int64_t dim,
                     int64_t at, int64_t count) {
    if (dim < 0)
      return value;
    RankedTensorType type = pieceOf(typeOf(value), dim, count);
    SmallVector<int64_t> offsets(type.getRank(), 0), ones(type.getRank(), 1);
    offsets[dim] = at * type.getDimSize(dim);
    auto op = nn::SliceOp::create(b, like->getLoc(), type, value, offsets,
                                  type.getShape(), ones);
    op->setDiscardableAttrs(like->getDiscardableAttrDictionary());
    return op;
  }

  /// Clones an operation with operands that are pieces. Its result is a piece
  /// of `count` elements along `dim`.
  static Value clonePiece(OpBuilder &b, Operation *op, ValueRange operands,
                          int64_t dim, int64_t count) {
    Operation *piece = b.clone(*op);
    piece->setOperands(operands);
    piece->getResult(0).setType(pieceOf(typeOf(op->getResult(0)), dim, count));
    return piece->getResult(0);
  }

  static Value join(OpBuilder &b, Operation *like, ValueRange pieces,
                    int64_t dim) {
    auto op = nn::ConcatOp::create(b, like->getLoc(), pieces, dim);
    op->setDiscardableAttrs(like->getDiscardableAttrDictionary());
    return op;
  }

  static Value productOf(OpBuilder &b, const Cut &cut, Value gathered,
                         Value piece, int64_t at, int64_t count) {
    SmallVector<Value> operands;
    for (auto [operand, dim] :
         llvm::zip_equal(cut.product->getOperands(), cut.operands))
      operands.push_back(operand == gathered
                             ? piece
                             : slice(b, cut.product, operand, dim, at, count));
    return clonePiece(b, cut.product, operands, cut.result, count);
  }

  /// Splits the product whose result this collective reduces, if nothing else
  /// reads the result.
  void cutSum(CollectiveOpInterface collective) {
    auto product = collective->getOperand(0).getDefiningOp<nn::EinsumOp>();
    if (!product || !product->hasOneUse() ||
        product->getBlock() != collective->getBlock())
      return;
    ArrayRef<int64_t> scattered;
    if (auto scatter = dyn_cast<ReduceScatterOp>(*collective))
      scattered = scatter.getDims();
    RankedTensorType type = typeOf(product.getResult());
    int64_t dim = outermost(type, scattered);
    if (dim < 0)
      return;
    ShardingRule rule = ShardingRule::of(product);
    int64_t factor = factorOf(rule.results[0][dim]);
    std::optional<Cut> cut =
        factor < 0 ? std::nullopt : cutAlong(product, rule, factor);
    if (!cut)
      return;
    int64_t count =
        choose(collective, *cut, type.getDimSize(dim), /*isGather=*/false,
               bytesToJoin(collective->getResult(0)));
    if (count == 1)
      return;
    OpBuilder b(product);
    SmallVector<Value> pieces;
    for (int64_t at = 0; at < count; ++at)
      pieces.push_back(productOf(b, *cut, {}, {}, at, count));
    b.setInsertionPoint(collective);
    for (Value &piece : pieces)
      piece = clonePiece(b, collective, piece, dim, count);
    collective->getResult(0).replaceAllUsesWith(
        join(b, collective, pieces, dim));
    collective->erase();
    product->erase();
  }

  /// Splits the products that read this gather.
  void cutGather(CollectiveOpInterface collective) {
    Value gathered = collective->getResult(0);
    RankedTensorType type = typeOf(gathered);
    int64_t dim = outermost(type, cast<AllGatherOp>(*collective).getDims());
    if (dim < 0)
      return;
    SmallVector<Cut> cuts;
    double bytes = 0;
    llvm::SetVector<Operation *> users(gathered.user_begin(),
                                       gathered.user_end());
    for (Operation *user : users) {
      auto product = dyn_cast<nn::EinsumOp>(user);
      std::optional<Cut> cut;
      if (product && product->getBlock() == collective->getBlock())
        for (OpOperand &operand : product->getOpOperands())
          if (operand.get() == gathered && !cut) {
            ShardingRule rule = ShardingRule::of(product);
            if (int64_t factor =
                    factorOf(rule.operands[operand.getOperandNumber()][dim]);
                factor >= 0)
              cut = cutAlong(product, rule, factor);
          }
      // All readers of the gathered value must be products that can be cut. Any
      // other reader would need the whole value in addition to the pieces. A
      // product that reads the gathered value as both operands cannot be cut,
      // because its two operands would be cut along different factors.
      if (!cut || llvm::count(product->getOperands(), gathered) != 1)
        return;
      bytes += bytesToJoin(product.getResult());
      cuts.push_back(std::move(*cut));
    }
    if (cuts.empty())
      return;
    int64_t count = choose(collective, cuts, type.getDimSize(dim),
                           /*isGather=*/true, bytes);
    if (count == 1)
      return;
    llvm::sort(cuts, [](const Cut &a, const Cut &b) {
      return a.product->isBeforeInBlock(b.product);
    });
    OpBuilder b(collective);
    SmallVector<Value> pieces;
    for (int64_t at = 0; at < count; ++at)
      pieces.push_back(clonePiece(
          b, collective,
          slice(b, collective, collective->getOperand(0), dim, at, count), dim,
          count));
    // The pieces of several products alternate, so that each gathered piece is
    // read by all products as soon as it arrives. Products that wait for other
    // operands come later.
    Operation *first = cuts.front().product;
    SmallVector<SmallVector<Value>> results(cuts.size());
    auto isKnown = [&](const Cut &cut) {
      return llvm::all_of(cut.product->getOperands(), [&](Value operand) {
        Operation *def = operand.getDefiningOp();
        return !def || def->getBlock() != first->getBlock() ||
               def->isBeforeInBlock(first);
      });
    };
    for (int64_t at = 0; at < count; ++at)
      for (auto [cut, into] : llvm::zip_equal(cuts, results)) {
        b.setInsertionPoint(isKnown(cut) ? first : cut.product.getOperation());
        into.push_back(productOf(b, cut, gathered, pieces[at], at, count));
      }
    for (auto [cut, from] : llvm::zip_equal(cuts, results)) {
      b.setInsertionPoint(cut.product);
      cut.product.getResult().replaceAllUsesWith(
          join(b, cut.product, from, cut.result));
    }
    for (const Cut &cut : cuts)
      cut.product->erase();
    collective->erase();
  }

  const MeshAxes &mesh;
  const Cluster &cluster;
  const cost::LinkModel &links;
};

struct DistChunkProductsPass
    : cleave::impl::DistChunkProductsPassBase<DistChunkProductsPass> {
  using Base::Base;

  void runOnOperation() override {
    FailureOr<cost::Machine> machine =
        cost::Machine::load(getOperation(), cluster);
    if (failed(machine))
      return signalPassFailure();
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (!func.isExternal())
        Chunker(machine->mesh, machine->cluster, machine->links)
            .run(func.getBody().front());
  }
};

} // namespace
