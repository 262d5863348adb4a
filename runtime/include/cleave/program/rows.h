// Planning of rows that go to experts: all of it on i64.
#ifndef CLEAVE_PROGRAM_ROWS_H
#define CLEAVE_PROGRAM_ROWS_H

#include "cleave/program/values.h"

#include <cstdint>

namespace cleave::program {

// Plans in which of `rounds`, and where, rows go that are sent to the ranks of
// what they choose: row r goes to rank ids[r] / tile, to the next free of its
// places, of which a rank has `places` in each round. sources [rounds, ranks,
// places]: the row at each place; sent: its id less the first of the rank's
// tile; placeOf [rows]: the place of each row, counted over all rounds and
// ranks; -1 where there is none. counts [ranks, rounds]: how many. All are i64.
struct PlanRows {
  int64_t rows = 0, rounds = 1, ranks = 0, places = 0, tile = 1;
  BufferRef ids, sources, placeOf, sent, counts;
};

// Sorts rows by their ids, those of one id in order; rows whose id is outside
// [0, groups) come last. order [rows]: the row at each place; placeOf [rows]:
// the place of each row; sorted [rows]: the id at each place, -1 where it is
// outside. All are i64.
struct SortRows {
  int64_t rows = 0, groups = 1;
  BufferRef ids, order, placeOf, sorted;
};

// For each slot of ids [b, s, k], how many slots of its sample come before it,
// in the order of (position, index in k), that have chosen the same of e
// experts; ids of no expert give 0. With loads [rows, e], loads[r, id] is added
// for r < samples[b]. Positions are [b, s] where each sample has its own, else
// [s]. All are i64; scratch has 2 e + s.
struct PositionInExpert {
  int64_t b = 0, s = 0, k = 1, e = 1, rows = 0;
  bool perSample = false;
  BufferRef ids, positions, loads, samples, result, scratch;
};

} // namespace cleave::program

#endif // CLEAVE_PROGRAM_ROWS_H
