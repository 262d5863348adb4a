// Generates loops and branches. The operations in their bodies come from the
// generators in the other *Ops.cpp files of this folder.

#include "Generator.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include <memory>

using namespace mlir;
using namespace cleave;
using namespace cleave::random;

namespace {

/// Regions that are nested more deeply would test nothing new.
constexpr int64_t kMaxDepth = 2;

Value index(Generator &g, int64_t value) {
  return arith::ConstantIndexOp::create(g.b, g.loc, value);
}

/// Generates a loop of few iterations, possibly none. In each iteration,
/// rounding errors may grow by a factor of up to the largest magnitude of the
/// values.
bool loop(Generator &g) {
  if (g.depth == kMaxDepth)
    return false;
  SmallVector<Entry> carried;
  SmallVector<Value> inits;
  for (int64_t i = 0, end = g.random.between(1, 2); i < end; ++i) {
    Entry init = g.anyKind(0, 4);
    if (init.isFloat())
      init = g.tamed(init, 10);
    carried.push_back(init);
    inits.push_back(init.value);
  }
  static const int64_t choices[] = {0, 1, 2, 2, 3};
  int64_t trips = g.random.pick(choices), step = g.random.between(1, 2),
          from = g.random.below(3);
  // The last step of the loop may overshoot the end.
  int64_t to = from + trips * step - (trips ? g.random.below(step) : 0);
  Value low = index(g, from), high = index(g, to), by = index(g, step);
  auto loop = scf::ForOp::create(g.b, g.loc, low, high, by, inits);
  g.counters.push_back(loop.getInductionVar());
  g.inside(loop.getBody(), g.depth ? 30 : 1e3, [&] {
    SmallVector<double> bounds;
    for (auto [entry, value] :
         llvm::zip_equal(carried, loop.getRegionIterArgs())) {
      entry.bound = std::max(entry.bound, 4.0);
      entry.exact &= !entry.isFloat();
      g.give(value, entry.bound, entry.exact);
    }
    g.steps(g.random.between(1, 4));
    SmallVector<Value> yielded;
    for (const Entry &entry : carried)
      yielded.push_back(g.given(entry.type(), entry.bound).value);
    scf::YieldOp::create(g.b, g.loc, yielded);
  });
  g.counters.pop_back();
  for (auto [entry, result] : llvm::zip_equal(carried, loop.getResults()))
    g.give(result, entry.bound, entry.exact);
  return true;
}

/// Generates an nn.scan over dimension 0 of some value of the program. A second
/// slice operand may be a new argument of the function.
bool scan(Generator &g) {
  if (g.depth == kMaxDepth)
    return false;
  SmallVector<Entry> carried, slices;
  SmallVector<Value> inits, sliced;
  Entry first = g.anyKind(1, 4);
  int64_t trips = first.shape()[0];
  slices.push_back(first);
  if (g.random.chance(1, 3)) {
    SmallVector<int64_t> shape = {trips};
    llvm::append_range(shape, g.shape(0, 3));
    slices.push_back(g.like(g.floats(shape)));
  }
  for (const Entry &entry : slices)
    sliced.push_back(entry.value);
  for (int64_t i = 0, end = g.random.between(0, 2); i < end; ++i) {
    Entry init = g.anyKind(0, 4);
    if (init.isFloat())
      init = g.tamed(init, 10);
    init.bound = std::max(init.bound, 4.0);
    // Rounding errors may grow in each iteration.
    init.exact &= !init.isFloat();
    carried.push_back(init);
    inits.push_back(init.value);
  }
  auto body = std::make_unique<Block>();
  auto enter = [&](const Entry &entry, Type type) {
    g.give(body->addArgument(type, g.loc), entry.bound, entry.exact);
  };
  SmallVector<Entry> stacked;
  SmallVector<Value> yielded;
  g.inside(body.get(), g.depth ? 30 : 1e3, [&] {
    for (const Entry &entry : carried)
      enter(entry, entry.type());
    for (const Entry &entry : slices)
      enter(entry, entry.type().clone(entry.shape().drop_front()));
    ++g.isolated;
    g.steps(g.random.between(1, 4));
    --g.isolated;
    for (const Entry &entry : carried)
      yielded.push_back(g.given(entry.type(), entry.bound).value);
    for (int64_t i = 0, end = g.random.between(0, 2); i < end; ++i)
      if (g.last() && g.last()->type().getNumElements() * trips <=
                          4 * Generator::kMaxElements) {
        stacked.push_back(*g.last());
        yielded.push_back(g.last()->value);
      }
    nn::YieldOp::create(g.b, g.loc, yielded);
  });
  SmallVector<Type> types;
  for (const Entry &entry : stacked)
    types.push_back(entry.type());
  auto op = nn::ScanOp::create(g.b, g.loc, trips, inits, sliced, ValueRange(),
                               types, g.random.chance(1, 3));
  for (auto [argument, made] :
       llvm::zip_equal(body->getArguments(), op.getBody()->getArguments()))
    argument.replaceAllUsesWith(made);
  op.getBody()->getOperations().splice(op.getBody()->end(),
                                       body->getOperations());
  op.captureOutsideValues();
  for (auto [entry, result] : llvm::zip_equal(carried, op.getFinals()))
    g.give(result, entry.bound, entry.exact);
  for (auto [entry, result] : llvm::zip_equal(stacked, op.getStacked()))
    g.give(result, entry.bound, entry.exact);
  return true;
}

/// Returns the condition of a branch: a comparison of the enclosing loop's
/// induction variable with a constant, or a scalar of the program (a boolean,
/// or a comparison of two integers).
Value condition(Generator &g) {
  if (!g.counters.empty() && g.random.chance(1, 2))
    return arith::CmpIOp::create(g.b, g.loc, arith::CmpIPredicate::slt,
                                 g.counters.back(),
                                 index(g, g.random.between(1, 3)));
  Value tensor;
  if (g.random.chance(1, 2)) {
    tensor = g.like(g.bools({})).value;
  } else {
    Value l = g.like(g.ints({})).value, r = g.like(g.ints({})).value;
    tensor = arith::CmpIOp::create(g.b, g.loc, arith::CmpIPredicate::sle, l, r);
  }
  return tensor::ExtractOp::create(g.b, g.loc, tensor, ValueRange());
}

bool branch(Generator &g) {
  if (g.depth == kMaxDepth)
    return false;
  Value chosen = condition(g);
  // The first branch determines the result types of both.
  SmallVector<Entry> given;
  Block *sides[] = {new Block, new Block};
  for (auto [number, side] : llvm::enumerate(sides))
    g.inside(side, g.maxBound, [&] {
      g.steps(g.random.between(1, 2));
      SmallVector<Value> yielded;
      if (number == 0)
        given.push_back(g.last() ? *g.last() : g.any());
      else
        for (Entry &entry : given) {
          Entry other = g.given(entry.type(), g.maxBound);
          entry.bound = std::max(entry.bound, other.bound);
          entry.exact &= other.exact;
          yielded.push_back(other.value);
        }
      if (number == 0 && g.random.chance(1, 3)) {
        Entry more = g.anyKind(0, 4);
        given.push_back(more);
      }
      if (number == 0)
        for (const Entry &entry : given)
          yielded.push_back(entry.value);
      scf::YieldOp::create(g.b, g.loc, yielded);
    });
  SmallVector<Type> types;
  for (const Entry &entry : given)
    types.push_back(entry.type());
  auto op = scf::IfOp::create(g.b, g.loc, types, chosen,
                              /*addThenBlock=*/false, /*addElseBlock=*/false);
  op.getThenRegion().push_back(sides[0]);
  op.getElseRegion().push_back(sides[1]);
  for (auto [entry, result] : llvm::zip_equal(given, op.getResults()))
    g.give(result, entry.bound, entry.exact);
  return true;
}

} // namespace

ArrayRef<Family> cleave::random::regionFamilies() {
  static const Family families[] = {
      {"for", 4, loop},
      {"if", 4, branch},
  };
  return families;
}

ArrayRef<Family> cleave::random::scanFamilies() {
  static const Family families[] = {{"scan", 8, scan}};
  return families;
}
