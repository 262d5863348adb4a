// Checks the boundary entries (named buffers) of a program when it is loaded,
// because tiles.cpp trusts their sizes.

#include "boundary.h"

#include "error.h"
#include "positions.h"

#include <algorithm>
#include <string>

using namespace cleave;
using namespace cleave::program;

namespace {
[[noreturn]] void bad(const Boundary &entry, const std::string &message) {
  fail(CLEAVE_BAD_PROGRAM, "buffer \"" + entry.name + "\": " + message);
}

// Returns the number of elements, or -1 if a dimension is negative or the
// product overflows.
int64_t checkedCount(const std::vector<int64_t> &shape) {
  int64_t count = 1;
  for (int64_t dim : shape)
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count))
      return -1;
  return count;
}

std::string print(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

// Checks that the class of ranks to which the entry belongs exists, and that
// its ranks have the entry's arena.
void checkClass(const Program &program, const Classes &classes,
                const Boundary &entry) {
  if (entry.rankClass >= 0) {
    std::string own = "class " + std::to_string(entry.rankClass);
    if (classes.ranksOf(entry.rankClass) == 0)
      bad(entry, "no rank is of " + own);
    if (!classes.isSlice(entry.rankClass))
      bad(entry, "the ranks of " + own +
                     " are not all that have one index on some mesh axes");
  }
  int32_t arena = entry.buffer.arena;
  if (arena >= 0 && static_cast<size_t>(arena) < program.arenas.size() &&
      program.arenas[arena].rankClass >= 0 &&
      program.arenas[arena].rankClass != entry.rankClass)
    bad(entry, "is in arena \"" + program.arenas[arena].name +
                   "\", which only ranks of class " +
                   std::to_string(program.arenas[arena].rankClass) + " have");
}

// Checks the shape of the whole array and its view.
void checkView(const Boundary &entry) {
  int64_t count = checkedCount(entry.globalShape);
  if (count < 0)
    bad(entry, "shape " + print(entry.globalShape) + " is no shape");
  const std::vector<int64_t> &view = viewShape(entry);
  if (checkedCount(view) != count)
    bad(entry, "view " + print(view) + " does not hold the elements of " +
                   print(entry.globalShape));
  size_t rank = view.size();
  if (!entry.viewPerm.empty()) {
    std::vector<bool> seen(rank, false);
    bool valid = entry.viewPerm.size() == rank;
    for (int64_t dim : entry.viewPerm) {
      valid =
          valid && dim >= 0 && dim < static_cast<int64_t>(rank) && !seen[dim];
      if (valid)
        seen[dim] = true;
    }
    if (!valid)
      bad(entry, print(entry.viewPerm) + " is no permutation of " +
                     std::to_string(rank) + " dimensions");
  }
}

// Checks the mesh axes over which the buffer is split or partial.
void checkAxes(const Program &program, const Classes &classes,
               const Boundary &entry) {
  auto checkGroup = [&](const std::vector<SubAxis> &group) {
    for (const SubAxis &sub : group)
      if (sub.axis < 0 ||
          static_cast<size_t>(sub.axis) >= program.mesh.size() || sub.pre < 1 ||
          sub.size < 1 || sub.pre > program.mesh[sub.axis].size ||
          sub.size > program.mesh[sub.axis].size ||
          program.mesh[sub.axis].size % (sub.pre * sub.size) != 0)
        bad(entry, "a sub-axis does not fit the mesh");
      else if (sub.size > 1 && classes.fixes(entry.rankClass, sub.axis))
        bad(entry, "is cut along mesh axis \"" + program.mesh[sub.axis].name +
                       "\", on which all ranks of class " +
                       std::to_string(entry.rankClass) + " have one index");
  };
  checkGroup(entry.partial);
  for (const std::vector<SubAxis> &dim : entry.sharding)
    checkGroup(dim);
}

// Checks that the tiles of the ranks cover the whole array.
void checkCover(const Classes &classes, const Boundary &entry) {
  const std::vector<int64_t> &view = viewShape(entry);
  int64_t places = groupSize(entry.partial);
  for (size_t i = 0; i < view.size(); ++i) {
    int64_t dim = view[permuted(entry, i)];
    int64_t ways = entry.sharding.empty() ? 1 : groupSize(entry.sharding[i]);
    places *= ways;
    int64_t tile = entry.localShape[i];
    if (tile < 0 || tile > INT64_MAX / ways || tile * ways < dim)
      bad(entry, "tiles of " + std::to_string(tile) + " do not cover dim " +
                     std::to_string(i) + " of size " + std::to_string(dim) +
                     " in " + std::to_string(ways) + " ways");
  }
  int64_t ranks = classes.ranksOf(entry.rankClass);
  if (places > ranks || ranks % places != 0)
    bad(entry, "is cut into more tiles than there are ranks");
}
} // namespace

const std::vector<int64_t> &cleave::viewShape(const Boundary &entry) {
  return entry.viewShape.empty() ? entry.globalShape : entry.viewShape;
}

int64_t cleave::permuted(const Boundary &entry, size_t dim) {
  return entry.viewPerm.empty() ? static_cast<int64_t>(dim)
                                : entry.viewPerm[dim];
}

Classes::Classes(const Program &program) : program(program) {
  std::map<int32_t, std::vector<std::vector<bool>>> seen;
  for (int64_t rank = 0; rank < program.numRanks(); ++rank) {
    auto own = static_cast<int32_t>(program.classOf(rank));
    ++classes[own].ranks;
    std::vector<std::vector<bool>> &axes = seen[own];
    axes.resize(program.mesh.size());
    std::vector<int64_t> index = axisIndices(program, rank);
    for (size_t axis = 0; axis < index.size(); ++axis) {
      axes[axis].resize(program.mesh[axis].size);
      axes[axis][index[axis]] = true;
    }
  }
  for (auto &[id, axes] : seen)
    for (const std::vector<bool> &axis : axes)
      classes[id].indices.push_back(std::count(axis.begin(), axis.end(), true));
}

int64_t Classes::ranksOf(int32_t rankClass) const {
  if (rankClass < 0)
    return program.numRanks();
  auto found = classes.find(rankClass);
  return found == classes.end() ? 0 : found->second.ranks;
}

bool Classes::isSlice(int32_t rankClass) const {
  const Class &ranks = classes.at(rankClass);
  int64_t all = 1;
  for (size_t axis = 0; axis < ranks.indices.size(); ++axis) {
    if (ranks.indices[axis] != 1 &&
        ranks.indices[axis] != program.mesh[axis].size)
      return false;
    all *= ranks.indices[axis];
  }
  return ranks.ranks == all;
}

bool Classes::fixes(int32_t rankClass, int32_t axis) const {
  return rankClass >= 0 && classes.at(rankClass).indices[axis] == 1 &&
         program.mesh[axis].size > 1;
}

void cleave::checkBoundary(const Program &program, const Classes &classes,
                           const Boundary &entry) {
  checkClass(program, classes, entry);
  checkView(entry);
  size_t rank = viewShape(entry).size();
  if (entry.localShape.size() != rank)
    bad(entry, "tile " + print(entry.localShape) + " of a rank-" +
                   std::to_string(rank) + " view");
  if (!entry.sharding.empty() && entry.sharding.size() != rank)
    bad(entry, "sharding of " + std::to_string(entry.sharding.size()) +
                   " dimensions, expected " + std::to_string(rank));
  checkAxes(program, classes, entry);
  checkCover(classes, entry);
  int64_t bytes = checkedCount(entry.localShape);
  if (bytes < 0 || bytes > INT64_MAX / sizeOf(entry.dtype))
    bad(entry, "tile " + print(entry.localShape) + " is too large");
}
