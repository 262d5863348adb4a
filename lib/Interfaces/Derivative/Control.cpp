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
#include "ScanParts.h"

#include "cleave/Interfaces/BlockVJP.h"
#include "cleave/Support/ValueUtils.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SmallBitVector.h"

#include <functional>

using namespace mlir;
using namespace cleave;
using namespace cleave::derivative;

namespace {

/// Builds the region of the backward scan (one backward iteration), and
/// collects the values of the forward iteration that it reads.
class TripVJP : public BlockVJP {
public:
  TripVJP(nn::ScanOp scan, VJPContext &outer, ScanParts &parts)
      : BlockVJP(parts.builder(scan.getContext())), scan(scan), outer(outer),
        parts(parts) {}

  /// The values of the forward iteration that become stacked results of the
  /// forward scan, each with the argument of the backward iteration by which it
  /// is read.
  SmallVector<std::pair<Value, BlockArgument>> saved;

  /// A loop inside of the iteration is replaced by one that also stacks what
  /// its own derivative reads.
  void replaceForward(Operation *op, ValueRange values) override {
    BlockVJP::replaceForward(op, values);
    for (auto &[value, argument] : saved)
      if (value.getDefiningOp() == op)
        value = values[cast<OpResult>(value).getResultNumber()];
  }

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
    saved.push_back({value, argument});
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
    trip.eraseReplaced();
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
        perTrip(first + index, cotangent);
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

  /// Adds the cotangent of the sliced operand `index`, of which each iteration
  /// computes one slice. Terms that are products or sums over dimensions are
  /// computed for all iterations at once after the loop if that is possible,
  /// for the reason that the head of this file gives for captured operands.
  void perTrip(unsigned index, Value cotangent) {
    Value inside;
    OpBuilder &b = trip.builder();
    for (Value term : termsOf(cotangent))
      if (AfterLoop all = afterLoop(term, /*sum=*/false))
        sums.push_back({index, std::move(all)});
      else
        inside =
            inside ? arith::AddFOp::create(b, c.loc(), inside, term) : term;
    if (inside)
      stackedIndices.push_back({index, stack(inside)});
  }

  /// Returns the terms of a sum.
  static SmallVector<Value> termsOf(Value sum) {
    SmallVector<Value> todo = {sum}, terms;
    while (!todo.empty()) {
      Value term = todo.pop_back_val();
      if (auto add = term.getDefiningOp<arith::AddFOp>())
        todo.append({add.getLhs(), add.getRhs()});
      else
        terms.push_back(term);
    }
    return terms;
  }

  /// Sums the cotangent of the captured operand `index` over the iterations.
  /// Each term of the cotangent is summed after the loop if that is possible,
  /// and otherwise in a value that the backward scan carries.
  void sumOverTrips(unsigned index, Value cotangent) {
    SmallVector<Value> inside;
    for (Value term : termsOf(cotangent))
      if (AfterLoop sum = afterLoop(term, /*sum=*/true))
        sums.push_back({index, std::move(sum)});
      else
        inside.push_back(term);
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
  /// of an operand, from the results of the scan: the sum of the term over all
  /// iterations for a captured operand, and the tensor of the terms of all
  /// iterations for a sliced one.
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

  /// Returns a function that computes after the loop, for all iterations at
  /// once, the sum of `term` over the iterations (`sum`), or the tensor of the
  /// terms. Null if the term must be computed in the loop.
  AfterLoop afterLoop(Value term, bool sum) {
    Operation *op = term.getDefiningOp();
    if (isa_and_nonnull<nn::ReshapeOp, nn::TransposeOp>(op)) {
      AfterLoop inner = afterLoop(op->getOperand(0), sum);
      if (!inner)
        return {};
      return [this, inner, make = rebuild(op, sum)](nn::ScanOp backward) {
        return make(c.builder(), inner(backward));
      };
    }
    if (auto reduce = dyn_cast_or_null<nn::ReduceOp>(op);
        reduce && reduce.getCombiner() == nn::Combiner::Sum) {
      OverTrips input = overTrips(reduce.getInput());
      if (!input.varies)
        return {};
      SmallVector<int64_t> dims;
      if (sum)
        dims.push_back(0);
      for (int64_t dim : reduce.getDims())
        dims.push_back(dim + 1);
      return [this, input, dims](nn::ScanOp backward) -> Value {
        return nn::ReduceOp::create(c.builder(), c.loc(), nn::Combiner::Sum,
                                    input.in(backward), dims);
      };
    }
    if (auto einsum = dyn_cast_or_null<nn::EinsumOp>(op))
      return einsumAfterLoop(einsum, sum);
    return {};
  }

  /// Returns a function that creates a reshape or transpose like `op`, for the
  /// sum of all iterations (`sum`) or for a tensor whose dimension 0 has one
  /// index for each iteration.
  std::function<Value(OpBuilder &, Value)> rebuild(Operation *op, bool sum) {
    if (auto transpose = dyn_cast<nn::TransposeOp>(op)) {
      SmallVector<int64_t> permutation;
      if (!sum)
        permutation.push_back(0);
      for (int64_t dim : transpose.getPermutation())
        permutation.push_back(sum ? dim : dim + 1);
      return [this, permutation](OpBuilder &b, Value value) -> Value {
        return nn::TransposeOp::create(b, c.loc(), value, permutation);
      };
    }
    Type type = op->getResult(0).getType();
    if (!sum)
      type = scan.stackedType(type);
    return [this, type](OpBuilder &b, Value value) -> Value {
      return nn::ReshapeOp::create(b, c.loc(), type, value);
    };
  }

  AfterLoop einsumAfterLoop(nn::EinsumOp einsum, bool sum) {
    nn::EinsumOp::Labels labels = einsum.getLabels();
    std::string all = labels.lhs + labels.rhs;
    std::string over; // a letter for the iterations
    for (char letter : StringRef("tTzyxwvuZYXWVUabcdefghijklmnopqrs"))
      if (over.empty() && all.find(letter) == std::string::npos)
        over = letter;
    if (over.empty())
      return {};
    OverTrips lhs = overTrips(einsum.getLhs()),
              rhs = overTrips(einsum.getRhs());
    if (!lhs.varies && !rhs.varies)
      return {};
    // If one operand is the same in all iterations, a sum over the iterations
    // is that of the other operand.
    bool sumFirst = sum && !(lhs.varies && rhs.varies);
    auto lettersOf = [&](const OverTrips &operand, const std::string &letters) {
      return operand.varies && !sumFirst ? over + letters : letters;
    };
    std::string equation = lettersOf(lhs, labels.lhs) + "," +
                           lettersOf(rhs, labels.rhs) + "->" +
                           (sum ? labels.result : over + labels.result);
    Type type =
        sum ? Type(einsum.getType()) : scan.stackedType(einsum.getType());
    return [this, lhs, rhs, sumFirst, equation,
            type](nn::ScanOp backward) -> Value {
      auto read = [&](const OverTrips &operand) -> Value {
        Value value = operand.in(backward);
        if (!sumFirst || !operand.varies)
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
