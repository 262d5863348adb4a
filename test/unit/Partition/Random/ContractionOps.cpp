// Generates einsums, reductions, gathers and scatters.

#include "Generator.h"

using namespace mlir;
using namespace cleave;
using namespace cleave::random;

namespace {

/// An einsum with random letters: batch letters (in both operands and the
/// result), contracted letters (in both operands), and free letters. The sizes
/// of letters come from the first operand.
bool einsum(Generator &g) {
  Entry x = g.any(0, 4);
  std::string lhs, rhs, result;
  llvm::SmallDenseMap<char, int64_t> sizes;
  char next = 'a';
  for (int64_t extent : x.shape()) {
    char letter = next++;
    sizes[letter] = extent;
    lhs += letter;
    switch (g.random.below(3)) {
    case 0: // batch
      rhs += letter;
      result += letter;
      break;
    case 1: // contracted
      rhs += letter;
      break;
    default: // free
      result += letter;
    }
  }
  for (int64_t i = 0, more = g.random.below(3); i < more; ++i) {
    char letter = next++;
    sizes[letter] = g.size();
    rhs += letter;
    result += letter;
  }
  g.random.shuffle(rhs);
  g.random.shuffle(result);
  if (rhs.size() > 4 || result.size() > 5)
    return false;
  auto shapeOf = [&](StringRef letters) {
    SmallVector<int64_t> shape;
    for (char letter : letters)
      shape.push_back(sizes[letter]);
    return shape;
  };
  int64_t terms = 1, outputs = 1, inputs = 1;
  for (char letter : lhs)
    terms *= result.find(letter) == std::string::npos ? sizes[letter] : 1;
  for (char letter : result)
    outputs *= sizes[letter];
  for (char letter : rhs)
    inputs *= sizes[letter];
  if (outputs > 2 * g.kMaxElements || inputs > 2 * g.kMaxElements)
    return false;
  Entry y = g.like(g.floats(shapeOf(rhs)));
  double bound = x.bound * y.bound * terms;
  if (bound > g.maxBound)
    return false;
  std::string equation = lhs + "," + rhs + "->" + result;
  Value left = x.value, right = y.value;
  if (g.random.chance(1, 3)) {
    equation = rhs + "," + lhs + "->" + result;
    std::swap(left, right);
  }
  g.give(nn::EinsumOp::create(g.b, g.loc, equation, left, right), bound,
         x.exact && y.exact);
  return true;
}

template <nn::Combiner combiner> bool reduce(Generator &g) {
  Entry x = combiner == nn::Combiner::Sum ? g.any(1, 5) : g.anyKind(1, 5);
  SmallVector<int64_t> dims;
  int64_t terms = 1;
  for (int64_t dim = 0; dim < x.rank(); ++dim)
    if (g.random.chance(1, 2)) {
      dims.push_back(dim);
      terms *= x.shape()[dim];
    }
  if (dims.empty())
    return false;
  double bound = combiner == nn::Combiner::Sum ? x.bound * terms : x.bound;
  if (bound > g.maxBound)
    return false;
  g.give(nn::ReduceOp::create(g.b, g.loc, combiner, x.value,
                              g.b.getDenseI64ArrayAttr(dims)),
         bound, x.exact);
  return true;
}

/// Returns random indices: an integer value of the program. Some of its
/// elements are out of bounds for the table that they index.
Entry indices(Generator &g, ArrayRef<int64_t> shape) {
  return g.like(g.ints(shape));
}

/// Returns indices of rows in a table of `rows` rows, checked by
/// nn.check_index. They are either 0, 1, 2, ... along the first dimension, or
/// the indices `at`, clamped to [0, rows). If the first dimension is sharded
/// and padded, the indices in its padding may be too large; nn.check_index must
/// ignore them.
Value checked(Generator &g, Value at, int64_t rows) {
  auto type = cast<RankedTensorType>(at.getType());
  if (type.getRank() > 0 && type.getDimSize(0) <= rows) {
    at = nn::IotaOp::create(g.b, g.loc, type, 0);
  } else {
    Value first = nn::createSplat(g.b, g.loc, type, 0);
    Value last = nn::createSplat(g.b, g.loc, type, rows - 1);
    at = arith::MinSIOp::create(g.b, g.loc, at, last);
    at = arith::MaxSIOp::create(g.b, g.loc, at, first);
  }
  return nn::CheckIndexOp::create(g.b, g.loc, at, rows);
}

bool gather(Generator &g) {
  Entry table =
      g.random.chance(1, 6) ? g.like(g.ints(g.shape(1, 3))) : g.any(1, 4);
  int64_t dim = g.random.below(table.rank());
  SmallVector<int64_t> shape = g.shape(0, 2);
  int64_t count = table.type().getNumElements() / table.shape()[dim];
  for (int64_t extent : shape)
    count *= extent;
  if (count > 2 * g.kMaxElements)
    return false;
  Value at = indices(g, shape).value;
  if (g.random.chance(1, 6))
    at = checked(g, at, table.shape()[dim]);
  g.give(nn::GatherOp::create(g.b, g.loc, table.value, at, dim), table.bound,
         table.exact);
  return true;
}

bool scatterAdd(Generator &g) {
  Entry updates = g.any(1, 4);
  // The indices have the shape of `count` consecutive dimensions of the
  // updates, beginning with dimension `dim`.
  int64_t dim = g.random.below(updates.rank());
  int64_t count =
      g.random.between(0, std::min<int64_t>(2, updates.rank() - dim));
  SmallVector<int64_t> at(updates.shape().slice(dim, count)),
      table(updates.shape().take_front(dim));
  table.push_back(g.size());
  llvm::append_range(table, updates.shape().drop_front(dim + count));
  int64_t terms = 1;
  for (int64_t extent : at)
    terms *= extent;
  RankedTensorType type = g.floats(table);
  if (updates.bound * terms > g.maxBound ||
      type.getNumElements() > 2 * g.kMaxElements || table.size() > 5)
    return false;
  g.give(nn::ScatterAddOp::create(g.b, g.loc, type, indices(g, at).value,
                                  updates.value, dim),
         updates.bound * terms, updates.exact);
  return true;
}

bool argmax(Generator &g) {
  Entry x =
      g.random.chance(1, 6) ? g.like(g.ints(g.shape(1, 4))) : g.anyExact(1, 4);
  int64_t dim = g.random.below(x.rank());
  SmallVector<int64_t> shape(x.shape());
  shape.erase(shape.begin() + dim);
  g.give(nn::ArgMaxOp::create(g.b, g.loc, g.ints(shape), x.value, dim),
         x.shape()[dim], true);
  return true;
}

} // namespace

ArrayRef<Family> cleave::random::contractionFamilies() {
  static const Family families[] = {
      {"einsum", 16, einsum},
      {"reduce sum", 7, reduce<nn::Combiner::Sum>},
      {"reduce max", 4, reduce<nn::Combiner::Max>},
      {"reduce min", 3, reduce<nn::Combiner::Min>},
      {"gather", 8, gather},
      {"scatter_add", 8, scatterAdd},
      {"argmax", 6, argmax},
  };
  return families;
}
