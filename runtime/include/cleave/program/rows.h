// Commands that plan the dispatch of tokens to experts. All operands are i64.
#ifndef CLEAVE_PROGRAM_ROWS_H
#define CLEAVE_PROGRAM_ROWS_H

#include "cleave/program/values.h"

#include <cstdint>

namespace cleave::program {

// Plans how a rank (the sender) dispatches its rows to experts in `rounds`
// all-to-alls. Each rank holds `tile` experts. In each round, each rank has
// `places` slots for rows of the sender. Row r goes to rank ids[r] / tile, into
// the next free slot there. Results: sources [rounds, ranks, places] is the row
// in each slot, or -1 for an empty slot; sent is the expert of that row,
// numbered among the experts of its rank, or -1; placeOf [rows] is the slot of
// each row, numbered over all rounds and ranks, or -1 for a row that goes to no
// rank; counts [ranks, rounds] is the number of rows sent. All are i64.
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

// A slot is an entry of ids [b, s, k]: one of the k experts that a token
// chooses among e experts. Counts, for each slot, the slots of the same sample
// that chose the same expert and come before it in the order of (position,
// index in k). The count is 0 for ids that name no expert. `loads` [rows, e],
// if present, has the number of slots of each expert in earlier data; then the
// sum of loads[r, id] over the rows r < samples[b] is added to the counts of
// sample b. Positions are [b, s] if each sample has its own, else [s]. All are
// i64; scratch has 2 e + s elements.
struct PositionInExpert {
  int64_t b = 0, s = 0, k = 1, e = 1, rows = 0;
  bool perSample = false;
  BufferRef ids, positions, loads, samples, result, scratch;
};

} // namespace cleave::program

#endif // CLEAVE_PROGRAM_ROWS_H
