// Scatter and gather of named buffers. Not in the hot path: one generic loop
// over the elements of a tile, with the view as strides.

#include "tiles.h"

#include "error.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

using namespace cleave;
using namespace cleave::program;

namespace {
[[noreturn]] void bad(const Boundary &entry, const std::string &message) {
  fail(CLEAVE_BAD_PROGRAM, "buffer \"" + entry.name + "\": " + message);
}

// -1 if a dim is negative or the product does not fit.
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

const std::vector<int64_t> &viewShape(const Boundary &entry) {
  return entry.viewShape.empty() ? entry.globalShape : entry.viewShape;
}

int64_t permuted(const Boundary &entry, size_t dim) {
  return entry.viewPerm.empty() ? static_cast<int64_t>(dim)
                                : entry.viewPerm[dim];
}

// The sizes of the viewed array V, and its strides in the original one.
struct View {
  std::vector<int64_t> shape, strides;
};

View viewOf(const Boundary &entry) {
  const std::vector<int64_t> &shape = viewShape(entry);
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * shape[i];
  View view;
  for (size_t i = 0; i < shape.size(); ++i) {
    view.shape.push_back(shape[permuted(entry, i)]);
    view.strides.push_back(strides[permuted(entry, i)]);
  }
  return view;
}

// Which tile a rank holds, and which share of a partial value.
struct Place {
  std::vector<int64_t> tile;
  int64_t share = 0;
  bool operator==(const Place &other) const = default;
};

Place placeOf(const Program &program, const Boundary &entry, int64_t rank) {
  Place place;
  if (!holds(program, entry, rank)) {
    place.share = -1; // of nothing
    return place;
  }
  std::vector<int64_t> index = axisIndices(program, rank);
  place.tile.assign(entry.localShape.size(), 0);
  for (size_t i = 0; i < entry.sharding.size(); ++i)
    place.tile[i] = groupIndex(program, index, entry.sharding[i]);
  place.share = groupIndex(program, index, entry.partial);
  return place;
}

// Calls body(element of the tile, element of the whole array or -1 for
// padding) in the tile's order.
template <class Body>
void forTile(const Boundary &entry, const View &view, const Place &place,
             Body body) {
  size_t rank = entry.localShape.size();
  if (rank == 0)
    return body(0, 0);
  int64_t count = elementCount(entry.localShape);
  // A row of the last dimension at a time: `valid` elements, then padding.
  int64_t row = entry.localShape[rank - 1], stride = view.strides[rank - 1];
  int64_t first = place.tile[rank - 1] * row;
  int64_t inside = std::clamp<int64_t>(view.shape[rank - 1] - first, 0, row);
  std::vector<int64_t> at(rank, 0);
  for (int64_t element = 0; element < count; element += row) {
    int64_t whole = first * stride, valid = inside;
    for (size_t i = 0; i + 1 < rank; ++i) {
      int64_t position = place.tile[i] * entry.localShape[i] + at[i];
      if (position >= view.shape[i])
        valid = 0;
      whole += position * view.strides[i];
    }
    for (int64_t j = 0; j < valid; ++j)
      body(element + j, whole + j * stride);
    for (int64_t j = valid; j < row; ++j)
      body(element + j, -1);
    for (size_t i = rank - 1; i-- > 0;) {
      if (++at[i] < entry.localShape[i])
        break;
      at[i] = 0;
    }
  }
}

float fromBf16(uint16_t x) {
  uint32_t bits = uint32_t(x) << 16;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}

uint16_t toBf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if (x != x)
    return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

double loadFloat(DType type, const void *data, int64_t i) {
  switch (type) {
  case DType::F32:
    return static_cast<const float *>(data)[i];
  case DType::F64:
    return static_cast<const double *>(data)[i];
  default:
    return fromBf16(static_cast<const uint16_t *>(data)[i]);
  }
}

void storeFloat(DType type, void *data, int64_t i, double value) {
  switch (type) {
  case DType::F32:
    static_cast<float *>(data)[i] = static_cast<float>(value);
    break;
  case DType::F64:
    static_cast<double *>(data)[i] = value;
    break;
  default:
    static_cast<uint16_t *>(data)[i] = toBf16(static_cast<float>(value));
  }
}

bool isFloat(DType type) {
  return type == DType::F32 || type == DType::F64 || type == DType::BF16;
}

int64_t loadInt(DType type, const void *data, int64_t i) {
  switch (type) {
  case DType::I64:
    return static_cast<const int64_t *>(data)[i];
  case DType::I32:
    return static_cast<const int32_t *>(data)[i];
  case DType::I8:
    return static_cast<const int8_t *>(data)[i];
  default:
    return static_cast<const uint8_t *>(data)[i];
  }
}

void storeInt(DType type, void *data, int64_t i, int64_t value) {
  switch (type) {
  case DType::I64:
    static_cast<int64_t *>(data)[i] = value;
    break;
  case DType::I32:
    static_cast<int32_t *>(data)[i] = static_cast<int32_t>(value);
    break;
  default:
    static_cast<int8_t *>(data)[i] = static_cast<int8_t>(value);
  }
}

void copyElement(DType dstType, void *dst, int64_t i, DType srcType,
                 const void *src, int64_t j) {
  if (dstType == srcType) {
    int64_t size = sizeOf(dstType);
    std::memcpy(static_cast<char *>(dst) + i * size,
                static_cast<const char *>(src) + j * size, size);
  } else {
    storeFloat(dstType, dst, i, loadFloat(srcType, src, j));
  }
}

template <class T> T combine(ReduceOp op, T a, T b) {
  switch (op) {
  case ReduceOp::Sum:
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(uint64_t(a) + uint64_t(b)); // wraps
    else
      return a + b;
  case ReduceOp::Max:
    return (a > b || a != a) ? a : b;
  case ReduceOp::Min:
    return (a < b || a != a) ? a : b;
  }
  return a;
}

void storeIdentity(DType type, void *dst, int64_t i, ReduceOp op) {
  if (isFloat(type)) {
    double infinity = std::numeric_limits<double>::infinity();
    storeFloat(type, dst, i,
               op == ReduceOp::Sum   ? 0.0
               : op == ReduceOp::Max ? -infinity
                                     : infinity);
    return;
  }
  int bits = static_cast<int>(8 * sizeOf(type)) - (type == DType::U8 ? 0 : 1);
  int64_t high = bits == 63 ? INT64_MAX : (int64_t(1) << bits) - 1;
  int64_t low = type == DType::U8 ? 0 : -high - 1;
  storeInt(type, dst, i,
           op == ReduceOp::Sum   ? 0
           : op == ReduceOp::Max ? low
                                 : high);
}

void checkTypes(const Boundary &entry, DType host) {
  if (entry.dtype != host && !(isFloat(entry.dtype) && isFloat(host)))
    fail(CLEAVE_BAD_ARGUMENT, "buffer \"" + entry.name + "\" holds " +
                                  nameOf(entry.dtype) + ", got " +
                                  nameOf(host));
}

// Notes that a and b differ in element i of type `type`.
void noteDifference(DType type, const void *a, const void *b, int64_t i,
                    cleave_gather_report &report) {
  double difference =
      isFloat(type) ? std::fabs(loadFloat(type, a, i) - loadFloat(type, b, i))
                    : std::fabs(double(loadInt(type, a, i)) -
                                double(loadInt(type, b, i)));
  // A NaN wins, and stays.
  if (!std::isnan(report.max_difference) &&
      !(difference <= report.max_difference))
    report.max_difference = difference;
}

// Calls differ(i) for every element that is not equal, bit for bit.
template <class Differ>
void forDifferences(DType type, const void *a, const void *b, int64_t count,
                    Differ differ) {
  int64_t size = sizeOf(type);
  if (std::memcmp(a, b, count * size) == 0)
    return;
  for (int64_t i = 0; i < count; ++i)
    if (std::memcmp(static_cast<const char *>(a) + i * size,
                    static_cast<const char *>(b) + i * size, size) != 0)
      differ(i);
}

void compareReplicas(const Boundary &entry, const void *a, const void *b,
                     int rankA, int rankB, cleave_gather_report &report) {
  int64_t count = elementCount(entry.localShape);
  forDifferences(entry.dtype, a, b, count, [&](int64_t i) {
    if (report.identical) {
      report.identical = 0;
      report.rank_a = rankA;
      report.rank_b = rankB;
      report.element = i;
    }
    noteDifference(entry.dtype, a, b, i, report);
  });
}

// The first rank that holds an element of the whole array, and where.
std::pair<int32_t, int64_t> locate(const Program &program,
                                   const Boundary &entry, int64_t sought) {
  View view = viewOf(entry);
  for (int64_t rank = 0; rank < program.numRanks(); ++rank) {
    if (!holds(program, entry, rank))
      continue;
    int64_t found = -1;
    forTile(entry, view, placeOf(program, entry, rank),
            [&](int64_t element, int64_t whole) {
              if (whole == sought)
                found = element;
            });
    if (found >= 0)
      return {static_cast<int32_t>(rank), found};
  }
  return {-1, -1};
}
} // namespace

int64_t cleave::elementCount(const std::vector<int64_t> &shape) {
  int64_t count = 1;
  for (int64_t dim : shape)
    count *= dim;
  return count;
}

std::vector<int64_t> cleave::axisIndices(const Program &program, int64_t rank) {
  std::vector<int64_t> index(program.mesh.size());
  for (size_t i = program.mesh.size(); i-- > 0;) {
    index[i] = rank % program.mesh[i].size;
    rank /= program.mesh[i].size;
  }
  return index;
}

int64_t cleave::subAxisIndex(const Program &program,
                             const std::vector<int64_t> &axisIndex,
                             const SubAxis &sub) {
  int64_t stride = program.mesh[sub.axis].size / (sub.pre * sub.size);
  return axisIndex[sub.axis] / stride % sub.size;
}

int64_t cleave::groupIndex(const Program &program,
                           const std::vector<int64_t> &axisIndex,
                           const std::vector<SubAxis> &group) {
  int64_t index = 0;
  for (const SubAxis &sub : group)
    index = index * sub.size + subAxisIndex(program, axisIndex, sub);
  return index;
}

int64_t cleave::groupSize(const std::vector<SubAxis> &group) {
  int64_t size = 1;
  for (const SubAxis &sub : group)
    size *= sub.size;
  return size;
}

int64_t cleave::groupMember(const Program &program,
                            std::vector<int64_t> axisIndex,
                            const std::vector<SubAxis> &group, int64_t index) {
  const std::vector<int64_t> own = axisIndex;
  for (size_t i = group.size(); i-- > 0;) {
    const SubAxis &sub = group[i];
    int64_t stride = program.mesh[sub.axis].size / (sub.pre * sub.size);
    axisIndex[sub.axis] +=
        (index % sub.size - subAxisIndex(program, own, sub)) * stride;
    index /= sub.size;
  }
  int64_t rank = 0;
  for (size_t axis = 0; axis < axisIndex.size(); ++axis)
    rank = rank * program.mesh[axis].size + axisIndex[axis];
  return rank;
}

int64_t cleave::ownersOf(const Program &program, const Boundary &entry) {
  int64_t places = groupSize(entry.partial);
  for (const std::vector<SubAxis> &dim : entry.sharding)
    places *= groupSize(dim);
  int64_t ranks = program.numRanks();
  if (entry.rankClass >= 0 && !program.rankClass.empty())
    ranks = std::count(program.rankClass.begin(), program.rankClass.end(),
                       static_cast<uint32_t>(entry.rankClass));
  return ranks / places;
}

bool cleave::holds(const Program &program, const Boundary &entry,
                   int64_t rank) {
  return entry.rankClass < 0 ||
         program.classOf(rank) == static_cast<uint32_t>(entry.rankClass);
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
    bad(entry, "lies in arena \"" + program.arenas[arena].name +
                   "\", which only ranks of class " +
                   std::to_string(program.arenas[arena].rankClass) + " have");
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
  if (entry.localShape.size() != rank)
    bad(entry, "tile " + print(entry.localShape) + " of a rank-" +
                   std::to_string(rank) + " view");
  if (!entry.sharding.empty() && entry.sharding.size() != rank)
    bad(entry, "sharding of " + std::to_string(entry.sharding.size()) +
                   " dimensions, expected " + std::to_string(rank));
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
  int64_t places = groupSize(entry.partial);
  for (size_t i = 0; i < rank; ++i) {
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
  int64_t bytes = checkedCount(entry.localShape);
  if (bytes < 0 || bytes > INT64_MAX / sizeOf(entry.dtype))
    bad(entry, "tile " + print(entry.localShape) + " is too large");
}

void cleave::scatterTile(const Program &program, const Boundary &entry,
                         cleave_dtype hostType, const void *data,
                         const void *padding, int64_t rank, void *tile) {
  auto host = static_cast<DType>(hostType);
  checkTypes(entry, host);
  View view = viewOf(entry);
  int64_t size = sizeOf(entry.dtype);
  constexpr char zero[8] = {};
  if (!padding)
    padding = zero;
  Place place = placeOf(program, entry, rank);
  forTile(entry, view, place, [&](int64_t element, int64_t whole) {
    if (whole < 0)
      std::memcpy(static_cast<char *>(tile) + element * size, padding, size);
    else if (place.share != 0)
      storeIdentity(entry.dtype, tile, element, entry.partialOp);
    else
      copyElement(entry.dtype, tile, element, host, data, whole);
  });
}

std::vector<bool> cleave::neededTiles(const Program &program,
                                      const Boundary &entry, bool replicas) {
  std::vector<bool> needed(program.numRanks(), true);
  std::vector<Place> places;
  for (int64_t rank = 0; rank < program.numRanks(); ++rank) {
    places.push_back(placeOf(program, entry, rank));
    needed[rank] = places.back().share >= 0;
    if (!replicas && needed[rank])
      needed[rank] = std::find(places.begin(), places.end() - 1,
                               places.back()) == places.end() - 1;
  }
  return needed;
}

void cleave::gatherTiles(const Program &program, const Boundary &entry,
                         cleave_dtype hostType, void *data,
                         const std::vector<void *> &tiles,
                         cleave_gather_report *report) {
  auto host = static_cast<DType>(hostType);
  checkTypes(entry, host);
  View view = viewOf(entry);
  cleave_gather_report ignored;
  cleave_gather_report &out = report ? *report : ignored;
  out = {static_cast<int32_t>(ownersOf(program, entry)), 1, 0.0, -1, -1, -1, 0};
  std::vector<Place> places;
  for (size_t rank = 0; rank < tiles.size(); ++rank)
    places.push_back(placeOf(program, entry, rank));

  auto take = [&](size_t rank) {
    const void *tile = tiles[rank];
    bool first = places[rank].share == 0;
    int64_t size = sizeOf(entry.dtype);
    constexpr char zero[8] = {};
    forTile(entry, view, places[rank], [&](int64_t element, int64_t whole) {
      if (whole < 0) {
        out.nonzero_padding +=
            std::memcmp(static_cast<const char *>(tile) + element * size, zero,
                        size) != 0;
      } else if (first) {
        copyElement(host, data, whole, entry.dtype, tile, element);
      } else if (isFloat(host)) {
        storeFloat(host, data, whole,
                   combine(entry.partialOp, loadFloat(host, data, whole),
                           loadFloat(entry.dtype, tile, element)));
      } else {
        int64_t value = combine(entry.partialOp, loadInt(host, data, whole),
                                loadInt(entry.dtype, tile, element));
        if (entry.dtype == DType::U8) // sums of booleans wrap, too
          value &= 1;
        storeInt(host, data, whole, value);
      }
    });
  };
  // Shares in order, so that the first one assigns and the sum is repeatable.
  for (int64_t share = 0; share < groupSize(entry.partial); ++share)
    for (size_t rank = 0; rank < tiles.size(); ++rank) {
      if (places[rank].share != share)
        continue;
      size_t original = 0;
      while (!(places[original] == places[rank]))
        ++original;
      if (original == rank)
        take(rank);
      else if (report)
        compareReplicas(entry, tiles[original], tiles[rank],
                        static_cast<int>(original), static_cast<int>(rank),
                        out);
    }
}

void cleave::compareClasses(const Program &program, const Boundary &entryA,
                            const void *a, const Boundary &entryB,
                            const void *b, cleave_gather_report &report) {
  forDifferences(
      entryA.dtype, a, b, elementCount(entryA.globalShape), [&](int64_t i) {
        if (report.identical) {
          report.identical = 0;
          report.rank_a = locate(program, entryA, i).first;
          std::tie(report.rank_b, report.element) = locate(program, entryB, i);
        }
        noteDifference(entryA.dtype, a, b, i, report);
      });
}
