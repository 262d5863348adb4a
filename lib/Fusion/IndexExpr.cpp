// The algebra of index expressions.

#include "cleave/Fusion/IndexExpr.h"

#include "llvm/ADT/STLExtras.h"

#include <cassert>
#include <tuple>

using namespace cleave::kernels;

static int64_t floorDivide(int64_t a, int64_t b) {
  int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

IndexExpr IndexExpr::of(const IndexVar *var) {
  IndexExpr expr;
  expr.termList.push_back({var, 1});
  return expr;
}

int64_t IndexExpr::min() const {
  int64_t bound = constantTerm;
  for (auto [var, factor] : termList)
    bound += factor < 0 ? factor * (var->size - 1) : 0;
  return bound;
}

int64_t IndexExpr::max() const {
  int64_t bound = constantTerm;
  for (auto [var, factor] : termList)
    bound += factor > 0 ? factor * (var->size - 1) : 0;
  return bound;
}

uint64_t IndexExpr::loops() const {
  uint64_t set = 0;
  for (auto [var, factor] : termList)
    set |= var->loops;
  return set;
}

int64_t IndexExpr::coefficient(const IndexVar *var) const {
  for (auto [other, factor] : termList)
    if (other == var)
      return factor;
  return 0;
}

IndexExpr IndexExpr::operator+(const IndexExpr &other) const {
  IndexExpr sum(constantTerm + other.constantTerm);
  auto a = termList.begin(), b = other.termList.begin();
  while (a != termList.end() || b != other.termList.end()) {
    if (b == other.termList.end() ||
        (a != termList.end() && a->first->id < b->first->id)) {
      sum.termList.push_back(*a++);
    } else if (a == termList.end() || b->first->id < a->first->id) {
      sum.termList.push_back(*b++);
    } else {
      if (int64_t factor = a->second + b->second)
        sum.termList.push_back({a->first, factor});
      ++a, ++b;
    }
  }
  return sum;
}

IndexExpr IndexExpr::operator*(int64_t factor) const {
  if (factor == 0)
    return 0;
  IndexExpr product = *this;
  product.constantTerm *= factor;
  for (Term &term : product.termList)
    term.second *= factor;
  return product;
}

IndexExpr IndexExpr::operator-(const IndexExpr &other) const {
  return *this + other * -1;
}

bool IndexExpr::operator<(const IndexExpr &other) const {
  if (constantTerm != other.constantTerm)
    return constantTerm < other.constantTerm;
  return std::lexicographical_compare(
      termList.begin(), termList.end(), other.termList.begin(),
      other.termList.end(), [](const Term &a, const Term &b) {
        return std::tuple(a.first->id, a.second) <
               std::tuple(b.first->id, b.second);
      });
}

IndexVar *IndexSpace::create(IndexVar::Kind kind, int64_t size,
                             uint64_t loops) {
  auto var = std::make_unique<IndexVar>();
  var->id = vars.size();
  var->kind = kind;
  var->size = size;
  var->loops = loops;
  vars.push_back(std::move(var));
  return vars.back().get();
}

static bool hasData(const IndexExpr &expr) {
  return llvm::any_of(expr.terms(), [](const IndexExpr::Term &term) {
    return term.first->kind == IndexVar::Kind::Data ||
           hasData(term.first->base);
  });
}

bool cleave::kernels::isInBounds(llvm::ArrayRef<IndexExpr> index,
                                 llvm::ArrayRef<int64_t> shape) {
  return llvm::all_of(llvm::zip_equal(index, shape), [](auto pair) {
    auto [expr, size] = pair;
    return expr.min() >= 0 && expr.max() < size && !hasData(expr);
  });
}

const IndexVar *IndexSpace::addLoop(int64_t size) {
  assert(loopCount < 64 && "a set of loops is one word");
  IndexVar *var = create(IndexVar::Kind::Loop, size, uint64_t(1) << loopCount);
  var->loop = loopCount++;
  return var;
}

IndexExpr IndexSpace::data(Node *node, int64_t size, uint64_t loops) {
  IndexVar *var = create(IndexVar::Kind::Data, size, loops);
  var->node = node;
  return IndexExpr::of(var);
}

const IndexVar *IndexSpace::unique(IndexVar::Kind kind, const IndexExpr &base,
                                   int64_t divisor, int64_t size) {
  auto [entry, isNew] =
      derived.try_emplace({static_cast<int>(kind), divisor, base}, nullptr);
  if (isNew) {
    IndexVar *var = create(kind, size, base.loops());
    var->base = base;
    var->divisor = divisor;
    entry->second = var;
  }
  return entry->second;
}

/// Splits an expression into multiple * divisor + rest, and returns `multiple`
/// and `rest`. `rest` is as small as the coefficients allow.
static std::pair<IndexExpr, IndexExpr> split(const IndexExpr &expr,
                                             int64_t divisor) {
  int64_t whole = floorDivide(expr.constant(), divisor);
  IndexExpr multiple(whole), rest(expr.constant() - whole * divisor);
  for (auto [var, factor] : expr.terms()) {
    if (factor % divisor == 0)
      multiple = multiple + IndexExpr::of(var) * (factor / divisor);
    else
      rest = rest + IndexExpr::of(var) * factor;
  }
  return {multiple, rest};
}

IndexExpr IndexSpace::floorDiv(const IndexExpr &expr, int64_t divisor) {
  if (divisor == 1)
    return expr;
  auto [multiple, rest] = split(expr, divisor);
  int64_t low = floorDivide(rest.min(), divisor);
  if (low == floorDivide(rest.max(), divisor))
    return multiple + low;
  // (g a + b) / (g k) = a / k where 0 <= b < g.
  int64_t best = 1;
  for (auto [var, factor] : rest.terms()) {
    int64_t common = std::abs(factor);
    if (common <= best || divisor % common)
      continue;
    auto [inner, small] = split(rest, common);
    if (small.min() >= 0 && small.max() < common)
      best = common;
  }
  if (best > 1)
    return multiple + floorDiv(split(rest, best).first, divisor / best);
  // (e / a) / b = e / (a b)
  if (rest.constant() == 0 && rest.terms().size() == 1 &&
      rest.terms()[0].second == 1 &&
      rest.terms()[0].first->kind == IndexVar::Kind::FloorDiv) {
    const IndexVar *inner = rest.terms()[0].first;
    return multiple + floorDiv(inner->base, inner->divisor * divisor);
  }
  // The values of a variable start at 0, so a negative lower bound is split off
  // as a constant.
  IndexExpr shifted = rest - low * divisor;
  const IndexVar *var = unique(IndexVar::Kind::FloorDiv, shifted, divisor,
                               floorDivide(shifted.max(), divisor) + 1);
  return multiple + low + IndexExpr::of(var);
}

IndexExpr IndexSpace::mod(const IndexExpr &expr, int64_t divisor) {
  if (divisor == 1)
    return 0;
  IndexExpr rest = split(expr, divisor).second;
  int64_t low = floorDivide(rest.min(), divisor);
  if (low == floorDivide(rest.max(), divisor))
    return rest - low * divisor;
  // (g a + b) mod (g k) = g (a mod k) + b where 0 <= b < g.
  int64_t best = 1;
  for (auto [var, factor] : rest.terms()) {
    int64_t common = std::abs(factor);
    if (common <= best || divisor % common)
      continue;
    IndexExpr small = split(rest, common).second;
    if (small.min() >= 0 && small.max() < common)
      best = common;
  }
  if (best > 1) {
    auto [inner, small] = split(rest, best);
    return mod(inner, divisor / best) * best + small;
  }
  IndexExpr shifted = rest - low * divisor;
  return IndexExpr::of(unique(IndexVar::Kind::Mod, shifted, divisor, divisor));
}

llvm::SmallVector<IndexExpr>
IndexSpace::delinearize(IndexExpr index, llvm::ArrayRef<int64_t> shape) {
  llvm::SmallVector<IndexExpr> result(shape.size());
  for (size_t dim = shape.size(); dim-- > 1;) {
    result[dim] = mod(index, shape[dim]);
    index = floorDiv(index, shape[dim]);
  }
  if (!shape.empty())
    result[0] = index;
  return result;
}

IndexExpr IndexSpace::linearize(llvm::ArrayRef<IndexExpr> index,
                                llvm::ArrayRef<int64_t> shape) {
  assert(index.size() == shape.size());
  IndexExpr result;
  for (auto [position, size] : llvm::zip_equal(index, shape))
    result = recombine(result * size + position);
  return recombine(result);
}

IndexExpr IndexSpace::recombine(IndexExpr expr) {
  for (bool changed = true; changed;) {
    changed = false;
    for (auto [var, factor] : expr.terms()) {
      if (var->kind != IndexVar::Kind::Mod)
        continue;
      IndexExpr quotient = floorDiv(var->base, var->divisor);
      int64_t wanted = factor * var->divisor;
      bool complete = !quotient.terms().empty();
      for (auto [part, multiple] : quotient.terms())
        complete &= expr.coefficient(part) == multiple * wanted;
      if (!complete)
        continue;
      expr = expr - IndexExpr::of(var) * factor - quotient * wanted +
             var->base * factor;
      changed = true;
      break;
    }
  }
  return expr;
}
