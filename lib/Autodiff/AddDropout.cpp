// nn-add-dropout: adds dropout to the branches that are added to the residual
// stream, to embeddings, and to the weights of attention.

#include "BuildFunctions.h"
#include "DropoutPlaces.h"
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

/// Emits arithmetic operations that hash integers when the program runs. The
/// program derives the keys of its random numbers for dropout in this way, so
/// every rank and pipeline stage can compute the keys that it needs for a
/// microbatch without communication.
struct Hash {
  TensorExpr &e;

  /// Combines the key `known` with `value` into a new pseudorandom key: the
  /// finalizer of splitmix64 (Steele et al., 2014), modulo 2^64.
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
      module.emitError("the module has no function @loss to add dropout to");
      return signalPassFailure();
    }
    if (!(p >= 0 && p < 1)) {
      loss.emitError("dropout must be at least 0 and below 1, found ") << p;
      return signalPassFailure();
    }
    if (p == 0)
      return;
    func::FuncOp func = cloneAs(loss, nn::kLossTrainFunc);
    // Dropout is only applied to values that depend on samples. If no input has
    // a batch dimension, there are no such values.
    std::optional<int64_t> batch = batchOf(func);
    SmallVector<DropoutPlace> places;
    SmallVector<nn::AttentionOp> attentions;
    SmallVector<std::optional<int64_t>> dims;
    if (auto flow = nn::BatchFlow::ofArguments(func)) {
      places = findDropoutPlaces(func, *flow);
      func.walk([&](nn::AttentionOp op) {
        if (flow->isBatched(op.getQuery()) && !op.getDropoutKeys())
          attentions.push_back(op);
      });
      for (const DropoutPlace &place : places)
        dims.push_back(flow->majorDimOf(place.value));
      Value lost = withoutSamples(places, attentions, *flow);
      if (lost && *batch > 1) {
        mlir::emitError(
            lost.getLoc(),
            "dropout draws random numbers for each sample, but it is "
            "not known here which elements belong to which sample: "
            "samples are neither a dimension of this value nor the "
            "outer part of one; set train.dropout to 0, or export "
            "the model with samples in the first dimension");
        func.erase();
        return signalPassFailure();
      }
      if (lost) // the value belongs entirely to the only sample
        mlir::emitWarning(
            lost.getLoc(),
            "the dimension of samples is not known here; with one "
            "sample per call dropout draws for that one, but with more "
            "it may be refused, or this value may be left out");
    }
    if (places.empty() && attentions.empty()) {
      func.erase();
      loss.emitError("no place for dropout was found: no branch with a weight "
                     "is added to a residual stream, and no attention is "
                     "known; set train.dropout to 0");
      return signalPassFailure();
    }
    int64_t loops = 0;
    func.walk([&](nn::ScanOp) { ++loops; });
    if (loops)
      func.emitWarning("train.dropout does not reach into loops: nothing in ")
          << loops << (loops == 1 ? " loop" : " loops")
          << " of the model gets dropout";
    Randomness random = addArguments(func, *batch);
    for (auto [index, place] : llvm::enumerate(places))
      insert(*batch, place, dims[index], index, random);
    insert(func, *batch, attentions, random, places.size());
    auto counted = [](int64_t count, StringRef one, StringRef more) {
      return std::to_string(count) + " " + (count == 1 ? one : more).str();
    };
    int64_t rows = llvm::count_if(
        places, [](const DropoutPlace &place) { return place.isEmbedding; });
    mlir::emitRemark(loss.getLoc(), "dropout at ")
        << counted(rows, "embedding", "embeddings") << ", "
        << counted(places.size() - rows, "branch that joins a residual sum",
                   "branches that join residual sums")
        << " and on the weights of "
        << counted(attentions.size(), "attention", "attentions");
  }

  /// The arguments of @loss_train from which dropout masks are computed: the
  /// ids of the samples, the seed, and the number of the step.
  struct Randomness {
    Value ids, seed, step;
  };

  /// Returns the number of samples in one call; nullopt if no input has a batch
  /// dimension.
  std::optional<int64_t> batchOf(func::FuncOp func) {
    for (unsigned arg = 0; arg < func.getNumArguments(); ++arg) {
      auto type = cast<RankedTensorType>(func.getArgumentTypes()[arg]);
      if (std::optional<int64_t> dim =
              nn::batchDimOf(func.getArgAttrDict(arg), type.getRank()))
        return type.getDimSize(*dim);
    }
    return std::nullopt;
  }

  /// Returns the first value that needs dropout but whose batch dimension is
  /// unknown; null if there is none. For an attention, the batch dimension is
  /// assumed to be the first one. It may have several entries per sample, such
  /// as the windows of an image.
  static Value withoutSamples(ArrayRef<DropoutPlace> places,
                              ArrayRef<nn::AttentionOp> attentions,
                              const nn::BatchFlow &flow) {
    for (const DropoutPlace &place : places)
      if (!flow.majorDimOf(place.value))
        return place.value;
    for (nn::AttentionOp op : attentions)
      if (flow.majorDimOf(op.getQuery()) != 0)
        return op->getResult(0);
    return {};
  }

  Randomness addArguments(func::FuncOp func, int64_t batch) {
    MLIRContext *context = &getContext();
    Builder types(context);
    auto addArgument = [&](ArrayRef<int64_t> shape, nn::Role role) -> Value {
      unsigned index = func.getNumArguments();
      auto type = RankedTensorType::get(shape, types.getI64Type());
      (void)func.insertArgument(index, type,
                                portAttrs(context, nn::spell(role), role),
                                func.getLoc());
      return func.getArgument(index);
    };
    Value ids = addArgument({batch}, nn::Role::SampleIds);
    Value seed = addArgument({}, nn::Role::Seed);
    return {ids, seed, addArgument({}, nn::Role::Step)};
  }

  /// Inserts a dropout operation for the value of `place`. Its random numbers
  /// depend on `number`, which no other dropout has. The batch is the outermost
  /// factor of dimension `dim` of the value. It becomes the first dimension of
  /// the dropout's operand, so that the mask of a sample does not depend on
  /// where the samples are in the value. nullopt means that the value belongs
  /// to one sample.
  void insert(int64_t batch, const DropoutPlace &place,
              std::optional<int64_t> dim, int64_t number,
              const Randomness &random) {
    Value value = place.value;
    OpBuilder b(&getContext());
    b.setInsertionPointAfterValue(value);
    Location loc = value.getLoc();
    auto type = typeOf(value);
    SmallVector<int64_t> whole(type.getShape());
    auto reshape = [&](Value from, ArrayRef<int64_t> shape) -> Value {
      auto old = typeOf(from);
      if (old.getShape() == shape)
        return from;
      return nn::ReshapeOp::create(b, loc, old.clone(shape), from);
    };
    auto transpose = [&](Value from, ArrayRef<int64_t> order) -> Value {
      if (llvm::is_sorted(order))
        return from;
      auto old = typeOf(from);
      SmallVector<int64_t> shape;
      for (int64_t source : order)
        shape.push_back(old.getDimSize(source));
      return nn::TransposeOp::create(b, loc, old.clone(shape), from, order);
    };
    SmallVector<int64_t> split(whole);
    int64_t at = dim.value_or(0);
    if (!dim)
      split.insert(split.begin(), 1);
    else if (whole[at] != batch) {
      split[at] = whole[at] / batch;
      split.insert(split.begin() + at, batch);
    }
    auto order = llvm::to_vector(llvm::seq<int64_t>(0, split.size()));
    std::rotate(order.begin(), order.begin() + at, order.begin() + at + 1);
    SmallVector<int64_t> back(order.size());
    for (auto [to, from] : llvm::enumerate(order))
      back[from] = to;
    Value arranged = transpose(reshape(value, split), order);
    Value dropped = nn::DropoutOp::create(
        b, loc, arranged.getType(), arranged, random.seed, random.step,
        random.ids, ValueRange(), b.getF64FloatAttr(p),
        b.getI64IntegerAttr(number),
        b.getDenseI64ArrayAttr(typeOf(arranged).getShape()));
    dropped = reshape(transpose(dropped, back), whole);
    for (OpOperand *use : place.uses)
      use->set(dropped);
  }

  /// Adds dropout to the weights of each attention. The attention gets new
  /// operands: a random-number key for each sample and head, and the positions
  /// of the queries and of the attention keys, which select the random number
  /// of each weight of a head. The keys also depend on the attention's number:
  /// `first`, `first` + 1, ...
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
      // The number that is hashed into the random-number key has the number of
      // the attention in its upper 32 bits and the number of the head in its
      // lower 32 bits.
      Value head = e.make<arith::AddIOp>(
          e.make<arith::MulIOp>(iota(keys, 1), e.splatInt(keys, group)),
          iota(keys, 2));
      head = e.make<arith::AddIOp>(
          head, e.splatInt(keys, (first + int64_t(index)) << 32));
      Value own = samples;
      if (query[0] != batch) { // several entries per sample
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
