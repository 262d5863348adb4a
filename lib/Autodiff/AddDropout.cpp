// nn-add-dropout: random zeroes where a branch joins the residual stream, and
// among the weights of attention.

#include "Boundary.h"
#include "cleave/Autodiff/Passes.h"
#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Interfaces/TensorExpr.h"

namespace cleave {
#define GEN_PASS_DEF_ADDDROPOUTPASS
#include "cleave/Autodiff/Passes.h.inc"
} // namespace cleave

using namespace mlir;
using namespace cleave;
using namespace cleave::autodiff;

namespace {

bool isParameter(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument)
    return false;
  auto func = cast<func::FuncOp>(argument.getOwner()->getParentOp());
  return roleOf(func, argument.getArgNumber()) == "parameter";
}

/// A parameter repeated along other dimensions: a bias, not a stream.
bool isBias(Value value) {
  auto broadcast = value.getDefiningOp<nn::BroadcastOp>();
  return isParameter(value) || (broadcast && isParameter(broadcast.getInput()));
}

/// The value before it was moved, rounded or saved.
Value throughMoves(Value value) {
  while (isa_and_nonnull<nn::TransposeOp, nn::ReshapeOp, nn::SaveOp,
                         arith::ExtFOp, arith::TruncFOp>(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  return value;
}

/// The result of a contraction with a parameter, with or without its bias.
bool isBranch(Value value) {
  value = throughMoves(value);
  if (auto add = value.getDefiningOp<arith::AddFOp>()) {
    if (isBias(add.getRhs()))
      value = add.getLhs();
    else if (isBias(add.getLhs()))
      value = add.getRhs();
    else
      return false;
  }
  auto einsum = throughMoves(value).getDefiningOp<nn::EinsumOp>();
  return einsum &&
         (isParameter(einsum.getLhs()) || isParameter(einsum.getRhs()));
}

/// A branch that is multiplied by something, or normalized.
bool isScaledBranch(Value value) {
  Operation *op = throughMoves(value).getDefiningOp();
  if (auto product = dyn_cast_or_null<arith::MulFOp>(op))
    return isBranch(product.getLhs()) || isBranch(product.getRhs()) ||
           isScaledBranch(product.getLhs()) || isScaledBranch(product.getRhs());
  return isa_and_nonnull<nn::LayerNormOp, nn::RmsNormOp>(op) &&
         (isBranch(op->getOperand(0)) || isScaledBranch(op->getOperand(0)));
}

/// Rows of a table that is a parameter.
bool isEmbedding(Value value) {
  auto gather = value.getDefiningOp<nn::GatherOp>();
  return gather && isParameter(gather.getTable());
}

/// Hashes of integers, in ordinary arithmetic, so that every rank, microbatch
/// and stage computes those that it reads.
struct Hash {
  TensorExpr &e;

  /// A number for `value` beside `known`, as if drawn at random: the finalizer
  /// of splitmix64 (Steele et al., 2014), modulo 2^64.
  Value with(Value known, Value value) {
    RankedTensorType type = e.typeOf(known);
    auto number = [&](uint64_t x) { return e.splatInt(type, int64_t(x)); };
    auto fold = [&](Value x, int shift) {
      return e.make<arith::XOrIOp>(x, e.make<arith::ShRUIOp>(x, number(shift)));
    };
    Value x = e.make<arith::XOrIOp>(known, value);
    x = e.make<arith::AddIOp>(x, number(0x9E3779B97F4A7C15u));
    x = e.make<arith::MulIOp>(fold(x, 30), number(0xBF58476D1CE4E5B9u));
    x = e.make<arith::MulIOp>(fold(x, 27), number(0x94D049BB133111EBu));
    return fold(x, 31);
  }
};

struct AddDropoutPass : cleave::impl::AddDropoutPassBase<AddDropoutPass> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto loss = module.lookupSymbol<func::FuncOp>(nn::kLossFunc);
    if (!loss || loss.isExternal()) {
      module.emitError("has no function @loss to add dropout to");
      return signalPassFailure();
    }
    if (!(p >= 0 && p < 1)) {
      loss.emitError("dropout must be at least 0 and below 1, found ") << p;
      return signalPassFailure();
    }
    if (p == 0)
      return;
    func::FuncOp func = cloneAs(loss, nn::kLossTrainFunc);
    std::optional<int64_t> batch = batchOf(func);
    SmallVector<Value> places = findPlaces(func, batch);
    SmallVector<nn::AttentionOp> attentions = findAttentions(func, batch);
    if (places.empty() && attentions.empty()) {
      func.erase();
      loss.emitError("no place for dropout was found: nothing that a parameter "
                     "computes joins a sum per sample, and no attention is "
                     "known; set train.dropout to 0");
      return signalPassFailure();
    }
    Randomness random = addArguments(func, *batch);
    insert(*batch, places, random);
    insert(func, *batch, attentions, random, places.size());
    mlir::emitRemark(loss.getLoc(), "dropout at ")
        << places.size() << (places.size() == 1 ? " place" : " places")
        << " (embeddings, and what joins residual sums) and on the weights of "
        << attentions.size()
        << (attentions.size() == 1 ? " attention" : " attentions");
  }

  /// The arguments that masks depend on.
  struct Randomness {
    Value ids, seed, step;
  };

  /// How many samples a call takes.
  std::optional<int64_t> batchOf(func::FuncOp func) {
    for (unsigned arg = 0; arg < func.getNumArguments(); ++arg) {
      auto type = cast<RankedTensorType>(func.getArgumentTypes()[arg]);
      if (std::optional<int64_t> dim =
              nn::batchDimOf(func.getArgAttrDict(arg), type.getRank()))
        return type.getDimSize(*dim);
    }
    return std::nullopt;
  }

  static bool hasSamples(Value value, int64_t batch) {
    auto type = cast<RankedTensorType>(value.getType());
    return type.getRank() > 1 && type.getDimSize(0) == batch;
  }

  /// The addends of residual sums that branches compute, and sums with
  /// embeddings, in program order.
  SmallVector<Value> findPlaces(func::FuncOp func,
                                std::optional<int64_t> batch) {
    llvm::SetVector<Value> places;
    auto consider = [&](Value value) {
      // Everything belongs to a single sample, also without its dimension.
      if (batch && (*batch == 1 || hasSamples(value, *batch)))
        places.insert(value);
    };
    func.walk([&](arith::AddFOp add) {
      Value lhs = add.getLhs(), rhs = add.getRhs();
      bool embeds = isEmbedding(lhs) || isEmbedding(rhs);
      if (!embeds && (isBias(lhs) || isBias(rhs)))
        return;
      bool hasBranch = false;
      for (auto [addend, other] : {std::pair(lhs, rhs), std::pair(rhs, lhs)})
        // Two scaled products are no residual sum, but a rotation.
        if (isBranch(addend) || (isScaledBranch(addend) && !isBranch(other) &&
                                 !isScaledBranch(other))) {
          consider(addend);
          hasBranch = true;
        }
      if (!embeds)
        return;
      // Without positions an embedding is the stream itself.
      if (hasBranch)
        return consider(isEmbedding(lhs) ? lhs : rhs);
      // Of several embeddings the whole sum.
      places.remove(lhs);
      places.remove(rhs);
      consider(add);
    });
    return places.takeVector();
  }

  static SmallVector<nn::AttentionOp>
  findAttentions(func::FuncOp func, std::optional<int64_t> batch) {
    SmallVector<nn::AttentionOp> found;
    func.walk([&](nn::AttentionOp op) {
      int64_t samples = op.getQuery().getType().getDimSize(0);
      // A sample may be several here, of windows for example.
      if (batch && samples % *batch == 0 && !op.getDropoutKeys())
        found.push_back(op);
    });
    return found;
  }

  Randomness addArguments(func::FuncOp func, int64_t batch) {
    MLIRContext *context = &getContext();
    Builder types(context);
    auto addArgument = [&](ArrayRef<int64_t> shape, StringRef name) -> Value {
      unsigned index = func.getNumArguments();
      auto type = RankedTensorType::get(shape, types.getI64Type());
      (void)func.insertArgument(index, type, boundaryAttrs(context, name, name),
                                func.getLoc());
      return func.getArgument(index);
    };
    Value ids = addArgument({batch}, "sample_ids");
    Value seed = addArgument({}, "seed");
    return {ids, seed, addArgument({}, "step")};
  }

  void insert(int64_t batch, ArrayRef<Value> places, const Randomness &random) {
    MLIRContext *context = &getContext();
    for (auto [index, place] : llvm::enumerate(places)) {
      Value old = place, value = place;
      OpBuilder b(context);
      b.setInsertionPointAfterValue(value);
      Location loc = value.getLoc();
      auto type = cast<RankedTensorType>(value.getType());
      SmallVector<int64_t> shape(type.getShape());
      if (!hasSamples(value, batch)) {
        shape.insert(shape.begin(), 1);
        value = nn::ReshapeOp::create(b, loc, type.clone(shape), value);
      }
      Value dropped = nn::DropoutOp::create(
          b, loc, value.getType(), value, random.seed, random.step, random.ids,
          ValueRange(), b.getF64FloatAttr(p), b.getI64IntegerAttr(index),
          b.getDenseI64ArrayAttr(shape));
      Operation *user =
          value == old ? dropped.getDefiningOp() : value.getDefiningOp();
      if (value != old)
        dropped = nn::ReshapeOp::create(b, loc, type, dropped);
      old.replaceAllUsesExcept(dropped, user);
    }
  }

  /// Keys for every sample and head of each attention, numbered from `first`
  /// on, and the indices of its queries and keys.
  void insert(func::FuncOp func, int64_t batch,
              ArrayRef<nn::AttentionOp> attentions, const Randomness &random,
              int64_t first) {
    if (attentions.empty())
      return;
    auto b = OpBuilder::atBlockBegin(&func.getBody().front());
    TensorExpr e(b, func.getLoc());
    Hash hash{e};
    auto type = [&](ArrayRef<int64_t> shape) {
      return RankedTensorType::get(shape, b.getI64Type());
    };
    Value zero = e.splatInt(type({}), 0);
    Value call = hash.with(hash.with(zero, random.seed), random.step);
    Value samples = hash.with(e.everywhere(call, type({batch})), random.ids);
    for (auto [index, attention] : llvm::enumerate(attentions)) {
      nn::AttentionOp op = attention;
      b.setInsertionPoint(op);
      ArrayRef<int64_t> query = op.getQuery().getType().getShape();
      int64_t group = query[3];
      RankedTensorType keys = type({query[0], query[2], group});
      auto iota = [&](RankedTensorType type, int64_t dim) -> Value {
        return nn::IotaOp::create(b, op.getLoc(), type, dim);
      };
      // (number, head), a word each.
      Value head = e.make<arith::AddIOp>(
          e.make<arith::MulIOp>(iota(keys, 1), e.splatInt(keys, group)),
          iota(keys, 2));
      head = e.make<arith::AddIOp>(
          head, e.splatInt(keys, (first + int64_t(index)) << 32));
      Value own = samples;
      if (query[0] != batch) { // parts of samples
        auto parts = type({batch, query[0] / batch});
        own = hash.with(e.broadcast(own, parts, {0}), iota(parts, 1));
        own = nn::ReshapeOp::create(b, op.getLoc(), type({query[0]}), own);
      }
      op.getDropoutKeysMutable().assign(
          hash.with(e.broadcast(own, keys, {0}), head));
      op.getQIndexMutable().assign(iota(type({query[1]}), 0));
      op.getKIndexMutable().assign(
          iota(type({op.getKey().getType().getDimSize(1)}), 0));
      op.setDropout(APFloat(p));
    }
  }
};

} // namespace
