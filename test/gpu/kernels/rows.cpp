// Checks three commands: the sorting of rows by id, the planning of which rank
// each row is sent to, and the position of each slot (a pair of a token and an
// expert that it chose) among the slots of the same expert. All results are
// integers and must be equal.

#include "harness.h"

#include <algorithm>
#include <numeric>

using namespace cleave;
using namespace cleave::gpu;
using Numbers = std::vector<int64_t>;

namespace {
Numbers randomIds(Case &one, int64_t rows, int64_t groups) {
  int64_t outside = one.one(2) ? one.between(1, 8) : 0;
  one.say("one outside of", outside);
  Numbers ids;
  for (int64_t row = 0; row < rows; ++row)
    ids.push_back(outside && one.one(outside)
                      ? (one.one(2) ? -1 - row : groups + row)
                      : one.below(groups));
  return ids;
}

// Returns an array of 64-bit integers with these values, which upload() copies
// to the device.
Array arrayOf(const Numbers &values) {
  Array out(DType::I64, std::ssize(values));
  std::copy(values.begin(), values.end(), out.host<int64_t>());
  return out;
}
int64_t *upload(Case &one, Array &array) {
  return reinterpret_cast<int64_t *>(array.upload(one.stream));
}

void expect(Case &one, const char *what, Array &array, const Numbers &want) {
  array.download(one.stream);
  one.compareExactly(what, array, want);
}

void checkSort(Case &one) {
  program::SortRows sort;
  sort.rows = one.length(one.isSmall ? 600 : 20000);
  // Some cases have more groups than one thread block can count.
  sort.groups = one.one(4)   ? one.between(12288, 40000)
                : one.one(3) ? one.between(1, 3000)
                             : one.between(1, 70);
  one.say("rows", sort.rows), one.say("groups", sort.groups);
  Numbers ids = randomIds(one, sort.rows, sort.groups);
  auto chosen = [&](int64_t row) {
    return ids[row] >= 0 && ids[row] < sort.groups ? ids[row] : sort.groups;
  };
  Numbers order(sort.rows), placeOf(sort.rows), sorted;
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return chosen(a) < chosen(b); });
  for (int64_t place = 0; place < sort.rows; ++place) {
    placeOf[order[place]] = place;
    int64_t id = chosen(order[place]);
    sorted.push_back(id < sort.groups ? id : -1);
  }
  Array from = arrayOf(ids);
  Array gotOrder = arrayOf(Numbers(sort.rows, -7)),
        gotPlaces = arrayOf(Numbers(sort.rows, -7)),
        gotSorted = arrayOf(Numbers(sort.rows, -7));
  one.run(cuda::makeSortRows(one.kernels, sort,
                             {upload(one, from), upload(one, gotOrder),
                              upload(one, gotPlaces), upload(one, gotSorted)}));
  expect(one, "order", gotOrder, order);
  expect(one, "placeOf", gotPlaces, placeOf);
  expect(one, "sorted", gotSorted, sorted);
}

void checkPlan(Case &one) {
  program::PlanRows plan;
  plan.rows = one.length(one.isSmall ? 600 : 20000);
  plan.ranks = one.between(1, 32), plan.tile = one.between(1, 8);
  plan.places = one.one(3) ? plan.rows : one.between(1, plan.rows);
  plan.rounds = (plan.rows + plan.places - 1) / plan.places; // all fit
  one.say("rows", plan.rows), one.say("ranks", plan.ranks);
  one.say("tile", plan.tile), one.say("places", plan.places);
  one.say("rounds", plan.rounds);
  Numbers ids = randomIds(one, plan.rows, plan.ranks * plan.tile);
  int64_t all = plan.rounds * plan.ranks * plan.places;
  Numbers sources(all, -1), placeOf(plan.rows, -1), sent(all, -1),
      counts(plan.ranks * plan.rounds), taken(plan.ranks);
  for (int64_t row = 0; row < plan.rows; ++row) {
    int64_t to = ids[row] < 0 ? plan.ranks : ids[row] / plan.tile;
    if (to >= plan.ranks)
      continue;
    int64_t number = taken[to]++, round = number / plan.places;
    int64_t place =
        (round * plan.ranks + to) * plan.places + number % plan.places;
    ++counts[to * plan.rounds + round];
    sources[place] = row, placeOf[row] = place;
    sent[place] = ids[row] - to * plan.tile;
  }
  Array from = arrayOf(ids);
  Array gotSources = arrayOf(Numbers(all, -7)),
        gotPlaces = arrayOf(Numbers(plan.rows, -7)),
        gotSent = arrayOf(Numbers(all, -7)),
        gotCounts = arrayOf(Numbers(counts.size(), -7));
  one.run(cuda::makePlanRows(one.kernels, plan,
                             {upload(one, from), upload(one, gotSources),
                              upload(one, gotPlaces), upload(one, gotSent),
                              upload(one, gotCounts)}));
  expect(one, "sources", gotSources, sources);
  expect(one, "placeOf", gotPlaces, placeOf);
  expect(one, "sent", gotSent, sent);
  expect(one, "counts", gotCounts, counts);
}

void checkPositions(Case &one) {
  program::PositionInExpert x;
  x.b = one.between(1, 4), x.s = one.length(one.isSmall ? 100 : 1500);
  x.k = one.between(1, 4);
  // Some cases have more experts than one thread block can count.
  x.e = one.one(4) ? one.between(5000, 20000) : one.between(1, 64);
  x.rows = one.between(1, 5);
  x.perSample = one.one(2);
  bool hasLoads = one.one(2);
  int64_t order = one.below(3); // they count up, are mixed, or repeat
  one.say("b", x.b), one.say("s", x.s), one.say("k", x.k), one.say("e", x.e);
  one.say("loads", hasLoads ? x.rows : 0), one.say("order", order);
  one.say("positions per sample", x.perSample);
  int64_t slots = x.s * x.k;
  Numbers ids = randomIds(one, x.b * slots, x.e), positions, loads, samples;
  int64_t sets = x.perSample ? x.b : 1;
  for (int64_t set = 0; set < sets; ++set)
    for (int64_t i : order == 1 ? one.shuffled(x.s) : Numbers(x.s, -1)) {
      int64_t counted = std::ssize(positions) % x.s;
      positions.push_back(order == 0   ? 3 * counted - 2
                          : order == 1 ? i
                                       : one.below(5));
    }
  for (int64_t i = 0; i < x.rows * x.e; ++i)
    loads.push_back(one.below(100));
  for (int64_t i = 0; i < x.b; ++i)
    samples.push_back(one.between(0, x.rows));

  // Sorts the token-expert pairs by position and by the token's top-k index, so
  // that pairs with the same position and index are adjacent.
  Numbers want(ids.size());
  for (int64_t b = 0; b < x.b; ++b) {
    auto key = [&](int64_t slot) {
      int64_t at = (x.perSample ? b * x.s : 0) + slot / x.k;
      return std::pair(positions[at], slot % x.k);
    };
    Numbers sorted(slots), counted(x.e);
    std::iota(sorted.begin(), sorted.end(), 0);
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](int64_t i, int64_t j) { return key(i) < key(j); });
    auto idOf = [&](int64_t slot) {
      int64_t id = ids[b * slots + slot];
      return id >= 0 && id < x.e ? id : -1;
    };
    for (int64_t i = 0, next = 0; i < slots; i = next) {
      for (; next < slots && key(sorted[next]) == key(sorted[i]); ++next) {
        int64_t id = idOf(sorted[next]);
        int64_t &to = want[b * slots + sorted[next]];
        to = id < 0 ? 0 : counted[id];
        for (int64_t r = 0; id >= 0 && hasLoads && r < samples[b]; ++r)
          to += loads[r * x.e + id];
      }
      for (int64_t j = i; j < next; ++j)
        if (int64_t id = idOf(sorted[j]); id >= 0)
          ++counted[id];
    }
  }
  Array idArray = arrayOf(ids), positionArray = arrayOf(positions),
        loadArray = arrayOf(loads), sampleArray = arrayOf(samples);
  Array result = arrayOf(Numbers(ids.size(), -7)),
        scratch = arrayOf(Numbers(2 * x.e + x.s, -7));
  PositionInExpertBuffers at;
  at.ids = upload(one, idArray), at.positions = upload(one, positionArray);
  if (hasLoads)
    at.loads = upload(one, loadArray), at.samples = upload(one, sampleArray);
  at.result = upload(one, result), at.scratch = upload(one, scratch);
  one.run(cuda::makePositionInExpert(one.kernels, x, at));
  expect(one, "positions", result, want);
}
} // namespace

void gpu::addRowFamilies(std::vector<Family> &to) {
  to.push_back({"sort rows", checkSort, 48, 12});
  to.push_back({"plan rows", checkPlan, 48, 12});
  to.push_back({"position in expert", checkPositions, 48, 12});
}
