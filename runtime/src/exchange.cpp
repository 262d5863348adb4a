// Prepares an exchange for one rank: computes which boxes (rectangular ranges
// of elements) the rank sends and receives.

#include "exchange.h"

#include "error.h"
#include "positions.h"

using namespace cleave;
using namespace cleave::program;

namespace {
[[noreturn]] void bad(const std::string &message) {
  fail(CLEAVE_BAD_PROGRAM, "an exchange " + message);
}

void checkAxes(const Program &program, const std::vector<SubAxis> &axes,
               std::vector<SubAxis> &used) {
  for (const SubAxis &sub : axes) {
    bool known =
        sub.axis >= 0 && static_cast<size_t>(sub.axis) < program.mesh.size();
    int64_t size = known ? program.mesh[sub.axis].size : 0;
    if (!known || sub.pre < 1 || sub.size < 1 || sub.pre > size ||
        sub.size > size || size % (sub.pre * sub.size) != 0)
      bad("has a sub-axis that does not fit the mesh");
    for (const SubAxis &other : used)
      if (other.axis == sub.axis && other.pre < sub.pre * sub.size &&
          sub.pre < other.pre * other.size)
        bad("names a part of mesh axis " + program.mesh[sub.axis].name +
            " twice");
    used.push_back(sub);
  }
}

// Returns the strides of a dense tile. Throws if the number of its elements is
// not `count`.
std::vector<int64_t> stridesOf(const std::vector<int64_t> &shape,
                               const std::vector<std::vector<SubAxis>> &axes,
                               int64_t count, const char *side) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t dim = shape.size(); dim-- > 0;) {
    strides[dim] = stride;
    int64_t ways = positionsOn(axes[dim]);
    if (shape[dim] < 0 || shape[dim] > INT64_MAX - ways ||
        __builtin_mul_overflow(stride, (shape[dim] + ways - 1) / ways, &stride))
      bad("of a dimension of " + std::to_string(shape[dim]) + " elements");
  }
  if (stride != count)
    bad("has " + std::string(side) + " tiles of " + std::to_string(stride) +
        " elements, but buffers of " + std::to_string(count));
  return strides;
}
} // namespace

void cleave::prepareExchange(const Program &program, const Exchange &exchange,
                             const std::vector<int> &members, int self,
                             Part &part) {
  size_t rank = exchange.shape.size();
  if (exchange.from.size() != rank || exchange.to.size() != rank)
    bad("of " + std::to_string(rank) + " dimensions cuts " +
        std::to_string(exchange.from.size()) + " and " +
        std::to_string(exchange.to.size()));
  std::vector<SubAxis> used;
  for (const std::vector<SubAxis> &axes : exchange.from)
    checkAxes(program, axes, used);
  checkAxes(program, exchange.partial, used);
  used.clear();
  for (const std::vector<SubAxis> &axes : exchange.to)
    checkAxes(program, axes, used);
  checkAxes(program, exchange.toPartial, used);
  if (exchange.rounds < 1 || exchange.rounds > 2)
    bad("has " + std::to_string(exchange.rounds) + " rounds");
  part.rounds = exchange.rounds;
  part.srcStrides =
      stridesOf(exchange.shape, exchange.from, part.count, "source");
  int64_t count;
  if (part.dstOuter < 0 || part.dstInner < 0 ||
      __builtin_mul_overflow(part.dstOuter, part.dstInner, &count))
    bad("has a target of " + std::to_string(part.dstOuter) + " x " +
        std::to_string(part.dstInner) + " elements");
  part.dstStrides = stridesOf(exchange.shape, exchange.to, count, "target");
  std::vector<std::vector<int64_t>> coordinates;
  for (int member : members)
    coordinates.push_back(axisIndices(program, member));
  ExchangePlan plan(exchangeTiles(program.mesh, exchange, coordinates));
  if (!plan.complete())
    bad("needs elements that no rank of the group holds");
  part.pieces = plan.pieces(self);
}
