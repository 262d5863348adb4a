// Commands that plan the dispatch of tokens to experts. All operands are i64.
#ifndef CLEAVE_PROGRAM_ROWS_H
#define CLEAVE_PROGRAM_ROWS_H

#include "cleave/program/values.h"

#include <cstdint>

namespace cleave::program {

// Plans a dispatch in `rounds` all-to-alls: row r goes to rank ids[r] / tile,
// into the next free slot there; each rank has `places` slots in each round.
// Results: sources [rounds, ranks, places] is the row in each slot; sent has
// the expert of each slot, counted within the rank's tile of experts; placeOf
// [rows] is the slot of each row, numbered over all rounds and ranks. All three
// are -1 where there is none. counts [ranks, rounds] is the number of rows
// sent. All are i64.
struct PlanRows {
  int64_t rows = 0, rounds = 1, ranks = 0, places = 0, tile = 1;
  BufferRef ids, sources, placeOf, sent, counts;
};

// Stable sort of rows by id; rows with an id outside [0, groups) come last.
// Results: order [rows] is the row at each sorted position; placeOf [rows] is
// the sorted position of each row; sorted [rows] is the id at each position, or
// -1 if it is outside. All are i64.
struct SortRows {
  int64_t rows = 0, groups = 1;
  BufferRef ids, order, placeOf, sorted;
};

// Counts, for each slot of ids [b, s, k], the slots of the same sample that
// chose the same of e experts and come before it in the order of (position,
// index in k). The count is 0 for ids that name no expert. With loads [rows,
// e], loads[r, id] of earlier data is added for samples r < samples[b].
// Positions are [b, s] if each sample has its own, else [s]. All are i64;
// scratch has 2 e + s elements.
struct PositionInExpert {
  int64_t b = 0, s = 0, k = 1, e = 1, rows = 0;
  bool perSample = false;
  BufferRef ids, positions, loads, samples, result, scratch;
};

} // namespace cleave::program

#endif // CLEAVE_PROGRAM_ROWS_H
