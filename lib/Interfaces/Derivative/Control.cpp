// The derivative of nn.scan is a scan in the other direction, with one backward
// iteration for each iteration of the forward scan. Values of a forward
// iteration that the backward iteration reads become stacked results of the
// forward scan: tensors whose dimension 0 has one index for each iteration.
//
// A captured operand is a value that all iterations read, such as a weight. Its
// cotangent is a sum over all iterations. A term of this cotangent that is a
// product or a sum over dimensions is not computed in the loop. Instead its
// operands are stacked, and one product or sum after the loop also sums over
// the iterations. The reason is that such a term usually sums over samples. If
// the samples are sharded, this becomes a sum over ranks, and each iteration of
// the loop would contain a collective.

#include "Model.h"

#include "cleave/Interfaces/BlockVJP.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallBitVector.h"

#include <functional>

using namespace mlir;
using namespace cleave;
using namespace cleave::derivative;

namespace {

/// The operands and results of a scan while its region is being built.
struct ScanParts {
  explicit ScanParts(int64_t trips) : trips(trips) {}

  /// Returns a builder at the end of `block`, which is not part of a region
  /// yet.
  OpBuilder builder(MLIRContext *context) {
    OpBuilder b(context);
    b.setInsertionPointToEnd(&block);
    return b;
  }

  /// Each of these functions adds an operand of the scan (to `inits`, `slices`
  /// or `captures`) and an argument of the region, and returns the argument.
  BlockArgument carry(Value init) {
    inits.push_back(init);
    return carried.emplace_back(
        block.addArgument(init.getType(), init.getLoc()));
  }
  BlockArgument slice(Value whole) {
    slices.push_back(whole);
    auto type = cast<RankedTensorType>(whole.getType());
    return sliced.emplace_back(
        block.addArgument(RankedTensorType::get(type.getShape().drop_front(),
                                                type.getElementType()),
                          whole.getLoc()));
  }
  BlockArgument capture(Value value) {
    captures.push_back(value);
    return captured.emplace_back(
        block.addArgument(value.getType(), value.getLoc()));
  }

  /// Creates the scan. It gets the operations of `block` without those that
  /// nothing reads, and only the slices and captures that are read.
  nn::ScanOp create(OpBuilder &b, Location loc, ArrayRef<Value> next,
                    ArrayRef<Value> stacked, bool reverse) {
    SmallVector<Value> yielded(next);
    llvm::append_range(yielded, stacked);
    OpBuilder inner = builder(b.getContext());
    nn::YieldOp::create(inner, loc, yielded);
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
      if (isOpTriviallyDead(&op))
        op.erase();
    dropUnread(slices, sliced);
    dropUnread(captures, captured);
    auto scan = nn::ScanOp::create(b, loc, trips, inits, slices, captures,
                                   TypeRange(ValueRange(stacked)), reverse);
    for (auto [from, to] : {std::pair(&carried, scan.getCarriedArguments()),
                            std::pair(&sliced, scan.getSliceArguments()),
                            std::pair(&captured, scan.getCaptureArguments())})
      for (auto [before, after] : llvm::zip_equal(*from, to))
        before.replaceAllUsesWith(after);
    Block *body = scan.getBody();
    body->getOperations().splice(body->end(), block.getOperations());
    return scan;
  }

  static void dropUnread(SmallVector<Value> &operands,
                         SmallVector<BlockArgument> &arguments) {
    for (size_t index = arguments.size(); index-- > 0;)
      if (arguments[index].use_empty()) {
        operands.erase(operands.begin() + index);
        arguments.erase(arguments.begin() + index);
      }
  }

  int64_t trips;
  Block block;
  SmallVector<Value> inits, slices, captures;
  SmallVector<BlockArgument> carried, sliced, captured;
};

/// Builds the region of the backward scan (one backward iteration), and
/// collects the values of the forward iteration that it reads.
class TripVJP : public BlockVJP {
public:
  TripVJP(nn::ScanOp scan, VJPContext &outer, ScanParts &parts)
      : BlockVJP(parts.builder(scan.getContext())), scan(scan), outer(outer),
        parts(parts) {}

  /// The values of the forward iteration that become stacked results of the
  /// forward scan. Each is mapped to the argument of the backward iteration by
  /// which it is read.
  llvm::MapVector<Value, BlockArgument> saved;

protected:
  Value readConstant(Value constant) override {
    return builder().clone(*constant.getDefiningOp())->getResult(0);
  }
  Value readArgument(BlockArgument argument) override {
    unsigned index = argument.getArgNumber();
    unsigned inits = scan.getInits().size();
    if (index < inits)
      return stack(argument);
    Value operand = outer.residual(scan->getOperand(index));
    return index < inits + scan.getSlices().size() ? parts.slice(operand)
                                                   : parts.capture(operand);
  }
  Value save(OpResult value) override { return stack(value); }

private:
  /// Returns an argument of the backward iteration for a value of the forward
  /// iteration. The stacked tensor does not exist yet: saveResiduals replaces
  /// the argument by a slice of it, after it has rebuilt the forward scan.
  Value stack(Value value) {
    BlockArgument argument =
        parts.block.addArgument(value.getType(), value.getLoc());
    saved[value] = argument;
    return argument;
  }

  nn::ScanOp scan;
  VJPContext &outer;
  ScanParts &parts;
};

/// The derivative of one scan.
class ScanVJP {
public:
  ScanVJP(nn::ScanOp scan, VJPContext &context)
      : scan(scan), c(context), parts(scan.getTrips()),
        trip(scan, context, parts) {}

  LogicalResult build() {
    activate();
    addCotangents();
    if (failed(trip.visit(forward)))
      return failure();
    saveResiduals();
    yieldCotangents();
    nn::ScanOp backward =
        parts.create(c.builder(), c.loc(), next, stacked, !scan.getReverse());
    distribute(backward);
    return success();
  }

private:
  unsigned numInits() { return scan.getInits().size(); }

  /// Marks the arguments of the region that need cotangents as active. A
  /// carried value is active if its initial value is active, or if an iteration
  /// computes its next value from an active value.
  void activate() {
    Block &body = *scan.getBody();
    for (BlockArgument argument : body.getArguments())
      if (c.wanted(argument.getArgNumber()))
        trip.activate(argument);
    for (bool again = true; again;) {
      again = false;
      forward = trip.activateResults(body);
      for (auto [argument, value] : llvm::zip_equal(scan.getCarriedArguments(),
                                                    scan.getYieldedCarries()))
        if (trip.isActive(value) && !trip.isActive(argument)) {
          trip.activate(argument);
          again = true;
        }
    }
  }

  /// Returns the carried values whose cotangents are not always zero. These are
  /// the carried values with a cotangent after the loop, and those from which
  /// an iteration computes a value with a cotangent.
  llvm::SmallBitVector carriesWithCotangent() {
    llvm::SmallBitVector has(numInits());
    for (unsigned index = 0; index < numInits(); ++index)
      if (c.cotangent(index) &&
          trip.isActive(scan.getCarriedArguments()[index]))
        has.set(index);
    for (bool again = true; again;) {
      again = false;
      DenseSet<Value> reaches; // values that a cotangent reaches
      for (auto [index, value] :
           llvm::enumerate(scan.getBody()->getTerminator()->getOperands()))
        if (index < numInits() ? has.test(index) : !!c.cotangent(index))
          reaches.insert(value);
      for (Operation *op : llvm::reverse(forward))
        if (llvm::any_of(op->getResults(),
                         [&](Value v) { return reaches.contains(v); }))
          reaches.insert(op->operand_begin(), op->operand_end());
      for (auto [index, argument] : llvm::enumerate(scan.getCarriedArguments()))
        if (trip.isActive(argument) && reaches.contains(argument) &&
            !has.test(index)) {
          has.set(index);
          again = true;
        }
    }
    return has;
  }

  /// Sets the cotangents with which a backward iteration begins. The backward
  /// scan carries the cotangents of the carried values. The cotangents of the
  /// stacked results are operands of the backward scan, of which each backward
  /// iteration reads one slice.
  void addCotangents() {
    llvm::SmallBitVector has = carriesWithCotangent();
    Operation *yield = scan.getBody()->getTerminator();
    for (unsigned index : has.set_bits()) {
      BlockArgument argument = parts.carry(c.cotangentOrZero(index));
      carriedIndices.push_back(index);
      if (trip.isActive(yield->getOperand(index)))
        trip.add(yield->getOperand(index), argument);
    }
    for (unsigned index = numInits(); index < scan.getNumResults(); ++index)
      if (Value cotangent = c.cotangent(index);
          cotangent && trip.isActive(yield->getOperand(index)))
        trip.add(yield->getOperand(index), parts.slice(cotangent));
  }

  /// Replaces the forward scan by one that also stacks those values which the
  /// backward iterations read and which it did not stack before.
  void saveResiduals() {
    if (trip.saved.empty())
      return;
    SmallVector<Value> yielded(scan.getYieldedStacked());
    SmallVector<Type> types;
    for (auto &[value, argument] : trip.saved)
      if (!llvm::is_contained(yielded, value))
        yielded.push_back(value);
    for (Value value : yielded)
      types.push_back(value.getType());
    OpBuilder b(scan);
    auto wide = nn::ScanOp::create(
        b, scan.getLoc(), scan.getTrips(), scan.getInits(), scan.getSlices(),
        scan.getCaptures(), types, scan.getReverse());
    wide->setDiscardableAttrs(scan->getDiscardableAttrDictionary());
    IRMapping mapping;
    mapping.map(scan.getBody()->getArguments(), wide.getBody()->getArguments());
    OpBuilder inner = OpBuilder::atBlockEnd(wide.getBody());
    for (Operation &op : *scan.getBody())
      inner.clone(op, mapping);
    Operation *yield = wide.getBody()->getTerminator();
    for (Value value : ArrayRef(yielded).drop_front(scan.getStacked().size()))
      yield->insertOperands(yield->getNumOperands(), mapping.lookup(value));
    c.replaceForward(scan, wide.getResults().take_front(scan.getNumResults()));
    for (auto [value, argument] : trip.saved) {
      size_t index = llvm::find(yielded, value) - yielded.begin();
      argument.replaceAllUsesWith(
          parts.slice(c.residual(wide.getStacked()[index])));
    }
  }

  /// Collects the values that a backward iteration yields: the cotangents of
  /// carried values and of slices. The terms of the cotangent of a captured
  /// operand are added to a carried sum, or are computed after the loop from
  /// values that the iterations yield.
  void yieldCotangents() {
    for (unsigned index : carriedIndices) {
      Value argument = scan.getCarriedArguments()[index];
      Value cotangent = trip.cotangentOf(argument);
      next.push_back(cotangent ? cotangent : zeros(trip, typeOf(argument)));
    }
    unsigned first = numInits();
    for (auto [index, argument] : llvm::enumerate(scan.getSliceArguments()))
      if (Value cotangent = trip.cotangentOf(argument);
          cotangent && c.wanted(first + index))
        stackedIndices.push_back({first + unsigned(index), stack(cotangent)});
    first += scan.getSlices().size();
    for (auto [index, argument] : llvm::enumerate(scan.getCaptureArguments()))
      if (Value cotangent = trip.cotangentOf(argument);
          cotangent && c.wanted(first + index))
        sumOverTrips(first + index, cotangent);
  }

  Value zeros(VJPContext &context, RankedTensorType type) {
    return nn::createSplat(context.builder(), c.loc(), type, 0.0);
  }

  /// Adds a value to the stacked results of the backward scan, and returns its
  /// index among them.
  unsigned stack(Value value) {
    auto at = llvm::find(stacked, value);
    if (at == stacked.end())
      at = stacked.insert(at, value);
    return at - stacked.begin();
  }

  /// Sums the cotangent of the captured operand `index` over the iterations.
  /// Each term of the cotangent is summed after the loop if that is possible,
  /// and otherwise in a value that the backward scan carries.
  void sumOverTrips(unsigned index, Value cotangent) {
    SmallVector<Value> terms = {cotangent}, inside;
    while (!terms.empty()) {
      Value term = terms.pop_back_val();
      if (auto add = term.getDefiningOp<arith::AddFOp>())
        terms.append({add.getLhs(), add.getRhs()});
      else if (AfterLoop sum = sumAfterLoop(term))
        sums.push_back({index, std::move(sum)});
      else
        inside.push_back(term);
    }
    if (inside.empty())
      return;
    OpBuilder &b = trip.builder();
    Value sum = parts.carry(zeros(c, typeOf(cotangent)));
    for (Value term : inside)
      sum = arith::AddFOp::create(b, c.loc(), sum, term);
    carriedIndices.push_back(index);
    next.push_back(sum);
  }

  /// A function that emits, after the backward scan, one term of the cotangent
  /// of a captured operand. The term is computed from the results of the scan,
  /// and summed over all iterations.
  using AfterLoop = std::function<Value(nn::ScanOp backward)>;

  /// A value of the backward iterations as it can be read after the loop. If it
  /// varies, this is a tensor whose dimension 0 has one index for each
  /// iteration. Otherwise it is one value, which is the same in all iterations.
  struct OverTrips {
    Value operand;                  // a sliced or captured operand, or
    std::optional<unsigned> result; // a stacked result
    bool varies = true;

    Value in(nn::ScanOp backward) const {
      return result ? Value(backward.getStacked()[*result]) : operand;
    }
  };

  OverTrips overTrips(Value value) {
    for (auto [operand, argument] : llvm::zip_equal(parts.slices, parts.sliced))
      if (value == argument)
        return {operand, {}, true};
    for (auto [operand, argument] :
         llvm::zip_equal(parts.captures, parts.captured))
      if (value == argument)
        return {operand, {}, false};
    return {{}, stack(value), true};
  }

  /// Returns a function that computes the sum of `term` over the iterations
  /// after the loop; null if the sum must be computed in the loop.
  AfterLoop sumAfterLoop(Value term) {
    Operation *op = term.getDefiningOp();
    if (isa_and_nonnull<nn::ReshapeOp, nn::TransposeOp>(op)) {
      AfterLoop inner = sumAfterLoop(op->getOperand(0));
      if (!inner)
        return {};
      return [this, inner, make = rebuild(op)](nn::ScanOp backward) {
        return make(c.builder(), inner(backward));
      };
    }
    if (auto reduce = dyn_cast_or_null<nn::ReduceOp>(op);
        reduce && reduce.getCombiner() == nn::Combiner::Sum) {
      OverTrips input = overTrips(reduce.getInput());
      if (!input.varies)
        return {};
      SmallVector<int64_t> dims = {0};
      for (int64_t dim : reduce.getDims())
        dims.push_back(dim + 1);
      return [this, input, dims](nn::ScanOp backward) -> Value {
        return nn::ReduceOp::create(c.builder(), c.loc(), nn::Combiner::Sum,
                                    input.in(backward), dims);
      };
    }
    if (auto einsum = dyn_cast_or_null<nn::EinsumOp>(op))
      return sumEinsumAfterLoop(einsum);
    return {};
  }

  /// Returns a function that creates a reshape or transpose like `op`.
  std::function<Value(OpBuilder &, Value)> rebuild(Operation *op) {
    if (auto transpose = dyn_cast<nn::TransposeOp>(op))
      return [this,
              permutation = SmallVector<int64_t>(transpose.getPermutation())](
                 OpBuilder &b, Value value) -> Value {
        return nn::TransposeOp::create(b, c.loc(), value, permutation);
      };
    return [this, type = op->getResult(0).getType()](OpBuilder &b,
                                                     Value value) -> Value {
      return nn::ReshapeOp::create(b, c.loc(), type, value);
    };
  }

  AfterLoop sumEinsumAfterLoop(nn::EinsumOp einsum) {
    nn::EinsumOp::Labels labels = einsum.getLabels();
    std::string all = labels.lhs + labels.rhs;
    char over = 0; // a letter for the iterations
    for (char letter : StringRef("tTzyxwvuZYXWVUabcdefghijklmnopqrs"))
      if (!over && all.find(letter) == std::string::npos)
        over = letter;
    if (!over)
      return {};
    OverTrips lhs = overTrips(einsum.getLhs()),
              rhs = overTrips(einsum.getRhs());
    if (!lhs.varies && !rhs.varies)
      return {};
    // If one operand is the same in all iterations, the other operand is summed
    // over the iterations first.
    bool both = lhs.varies && rhs.varies;
    std::string prefix = both ? std::string(1, over) : "";
    std::string equation =
        prefix + labels.lhs + "," + prefix + labels.rhs + "->" + labels.result;
    return [this, lhs, rhs, both, equation,
            type = einsum.getType()](nn::ScanOp backward) -> Value {
      auto read = [&](const OverTrips &operand) -> Value {
        Value value = operand.in(backward);
        if (both || !operand.varies)
          return value;
        return nn::ReduceOp::create(c.builder(), c.loc(), nn::Combiner::Sum,
                                    value, ArrayRef<int64_t>{0});
      };
      return nn::EinsumOp::create(c.builder(), c.loc(), type, equation,
                                  read(lhs), read(rhs));
    };
  }

  /// Sets the cotangents of the forward scan's operands, which are results of
  /// the backward scan or are computed from them.
  void distribute(nn::ScanOp backward) {
    for (auto [index, value] : llvm::zip(carriedIndices, backward.getFinals()))
      c.set(index, value);
    for (auto [index, result] : stackedIndices)
      c.set(index, backward.getStacked()[result]);
    for (auto &[index, sum] : sums)
      c.set(index, sum(backward));
  }

  nn::ScanOp scan;
  VJPContext &c;
  ScanParts parts;
  TripVJP trip;
  SmallVector<Operation *> forward;
  /// What the backward scan yields: carried and stacked values.
  SmallVector<Value> next, stacked;
  /// The indices of the operands of the forward scan, in three lists according
  /// to where their cotangents are found after the backward scan: in the final
  /// carried values, in the stacked results (with the index of the result), or
  /// in sums that are computed after the loop.
  SmallVector<unsigned> carriedIndices;
  SmallVector<std::pair<unsigned, unsigned>> stackedIndices;
  SmallVector<std::pair<unsigned, AfterLoop>> sums;
};

} // namespace

static LogicalResult scan(nn::ScanOp op, VJPContext &c) {
  return ScanVJP(op, c).build();
}

void cleave::derivative::attachControl(MLIRContext *context) {
  attach<nn::ScanOp, scan>(context);
}
