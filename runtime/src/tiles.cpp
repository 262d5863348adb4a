// Scatters and gathers named buffers. Speed does not matter here: one generic
// loop visits the elements of a tile, and the view is expressed by strides.

#include "tiles.h"

#include "boundary.h"
#include "elements.h"
#include "error.h"
#include "positions.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

using namespace cleave;
using namespace cleave::program;

namespace {
// The array V that is cut into tiles: the original array after its reshape and
// permutation (program::Boundary). `shape` are the sizes of V, `strides` the
// distances of its elements in the original array.
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

// Which part of a buffer a rank holds: the index of its tile and, in a partial
// sum, the number of its term.
struct Place {
  std::vector<int64_t> tile;
  int64_t share = 0;
  bool operator==(const Place &other) const = default;
};

Place placeOf(const Program &program, const Boundary &entry, int64_t rank) {
  Place place;
  if (!holds(program, entry, rank)) {
    place.share = -1; // the rank holds nothing
    return place;
  }
  std::vector<int64_t> index = axisIndices(program, rank);
  place.tile.assign(entry.localShape.size(), 0);
  for (size_t i = 0; i < entry.sharding.size(); ++i)
    place.tile[i] = groupIndex(program, index, entry.sharding[i]);
  place.share = groupIndex(program, index, entry.partial);
  return place;
}

// Calls body(i, j) for each element i of a tile, in row-major order; j is the
// element's index in the whole array, or -1 for padding.
template <class Body>
void forTile(const Boundary &entry, const View &view, const Place &place,
             Body body) {
  size_t rank = entry.localShape.size();
  if (rank == 0)
    return body(0, 0);
  int64_t count = elementCount(entry.localShape);
  // Processes one row of the last dimension at a time: `valid` elements, then
  // padding.
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

void checkTypes(const Boundary &entry, DType host) {
  if (entry.dtype != host && !(isFloat(entry.dtype) && isFloat(host)))
    fail(CLEAVE_BAD_ARGUMENT, "buffer \"" + entry.name + "\" holds " +
                                  nameOf(entry.dtype) + ", got " +
                                  nameOf(host));
}

// Records in the report the difference between element i of a and of b. Both
// arrays have the type `type`.
void noteDifference(DType type, const void *a, const void *b, int64_t i,
                    cleave_gather_report &report) {
  double difference =
      isFloat(type) ? std::fabs(loadFloat(type, a, i) - loadFloat(type, b, i))
                    : std::fabs(double(loadInt(type, a, i)) -
                                double(loadInt(type, b, i)));
  // Once the largest difference is NaN, it stays NaN.
  if (!std::isnan(report.max_difference) &&
      !(difference <= report.max_difference))
    report.max_difference = difference;
}

bool sameBits(DType type, const void *a, const void *b, int64_t first,
              int64_t count) {
  int64_t size = sizeOf(type);
  return std::memcmp(static_cast<const char *>(a) + first * size,
                     static_cast<const char *>(b) + first * size,
                     count * size) == 0;
}

// Compares two copies of a tile, which should be equal because their ranks are
// replicas. Padding is ignored.
void compareReplicas(const Boundary &entry, const View &view,
                     const Place &place, const void *a, const void *b,
                     int rankA, int rankB, cleave_gather_report &report) {
  if (sameBits(entry.dtype, a, b, 0, elementCount(entry.localShape)))
    return;
  forTile(entry, view, place, [&](int64_t element, int64_t whole) {
    if (whole < 0 || sameBits(entry.dtype, a, b, element, 1))
      return;
    if (report.identical) {
      report.identical = 0;
      report.rank_a = rankA;
      report.rank_b = rankB;
      report.element = element;
    }
    noteDifference(entry.dtype, a, b, element, report);
  });
}

// Returns the first rank that holds an element of the whole array, and the
// element's position in the rank's tile.
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
        if (entry.dtype == DType::U8) // a sum of booleans is their parity
          value &= 1;
        storeInt(host, data, whole, value);
      }
    });
  };
  // The terms of a partial sum are combined in the order of their numbers, so
  // that the result is reproducible. The first term is assigned.
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
        compareReplicas(entry, view, places[rank], tiles[original], tiles[rank],
                        static_cast<int>(original), static_cast<int>(rank),
                        out);
    }
}

void cleave::compareClasses(const Program &program, const Boundary &entryA,
                            const void *a, const Boundary &entryB,
                            const void *b, cleave_gather_report &report) {
  int64_t count = elementCount(entryA.globalShape);
  if (sameBits(entryA.dtype, a, b, 0, count))
    return;
  for (int64_t i = 0; i < count; ++i) {
    if (sameBits(entryA.dtype, a, b, i, 1))
      continue;
    if (report.identical) {
      report.identical = 0;
      report.rank_a = locate(program, entryA, i).first;
      std::tie(report.rank_b, report.element) = locate(program, entryB, i);
    }
    noteDifference(entryA.dtype, a, b, i, report);
  }
}
