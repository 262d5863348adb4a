// Commands that plan the dispatch of tokens to experts. All operands are i64.
#ifndef CLEAVE_PROGRAM_ROWS_H
#define CLEAVE_PROGRAM_ROWS_H

#include "cleave/program/values.h"

#include <cstdint>

namespace cleave::program {

// Plans how a rank (the sender) dispatches its rows to experts in `rounds`
// all-to-alls. Each rank holds `tile` experts. In each all-to-all (round) the
// send buffer has `places` rows for each rank. Row r goes to rank ids[r] /
// tile, into the next free row of the buffers for this rank. Results, all i64:
// - sources [rounds, ranks, places]: the row that is sent in each row of the
//   send buffers, or -1 if it is empty;
// - sent, of the same shape: the expert of this row, numbered among the experts
//   of its rank, or -1;
// - placeOf [rows]: the position of each row in the send buffers, numbered
//   over all rounds and ranks, or -1 for a row that goes to no rank;
// - counts [ranks, rounds]: the number of rows sent.
struct PlanRows {
  int64_t rows = 0, rounds = 1, ranks = 0, places = 0, tile = 1;
  BufferRef ids, sources, placeOf, sent, counts;
};

// Sorts rows by id (stable); rows with an id outside [0, groups) come last.
// Results, all i64: order [rows] is the row at each sorted position; placeOf
// [rows] is the sorted position of each row; sorted [rows] is the id at each
// sorted position, or -1 if the id is outside [0, groups).
struct SortRows {
  int64_t rows = 0, groups = 1;
  BufferRef ids, order, placeOf, sorted;
};

// Counts, for each choice of an expert by a token, the earlier choices of the
// same expert. ids [b, s, k] has the k experts that each token chooses among e
// experts. For each entry of ids, `result` [b, s, k] is the number of entries
// of the same sample that are equal and come before it in the order of
// (position, index in k). It is 0 for entries that name no expert. Positions
// are [b, s] if each sample has its own (`perSample`), else [s].
//
// If `loads` [rows, e] is present, it has the number of choices of each expert
// in earlier data, and the sum of loads[r, id] over the rows r < samples[b] is
// added to the counts of sample b. All operands are i64; scratch has 2 e + s
// elements.
struct PositionInExpert {
  int64_t b = 0, s = 0, k = 1, e = 1, rows = 0;
  bool perSample = false;
  BufferRef ids, positions, loads, samples, result, scratch;
};

} // namespace cleave::program

#endif // CLEAVE_PROGRAM_ROWS_H
