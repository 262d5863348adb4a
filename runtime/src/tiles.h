// Converts between whole arrays, as files hold them, and the tiles of ranks.
#ifndef CLEAVE_RUNTIME_TILES_H
#define CLEAVE_RUNTIME_TILES_H

#include "cleave/program.h"
#include "cleave/runtime.h"

#include <vector>

namespace cleave {

// Returns the number of elements of an array of this shape.
int64_t elementCount(const std::vector<int64_t> &shape);

// Fills the tile of one rank. Elements beyond the end of the array get the bits
// of `padding`, or zero if it is NULL. See cleave_session_scatter.
void scatterTile(const program::Program &program,
                 const program::Boundary &entry, cleave_dtype hostType,
                 const void *data, const void *padding, int64_t rank,
                 void *tile);

// Returns for each rank whether gatherTiles needs its tile. If `replicas` is
// false, only one of several identical tiles is needed.
std::vector<bool> neededTiles(const program::Program &program,
                              const program::Boundary &entry, bool replicas);

// Gathers tiles into the whole array. `tiles[r]` is the tile of rank r, or NULL
// if neededTiles() says that it is not needed. See cleave_session_gather.
void gatherTiles(const program::Program &program,
                 const program::Boundary &entry, cleave_dtype hostType,
                 void *data, const std::vector<void *> &tiles,
                 cleave_gather_report *report);

// Compares the copies of a buffer that two classes of ranks hold, for example
// the two pipeline ranks that share a tied weight. `a` and `b` are the whole
// arrays in the buffer's own type, gathered from `entryA` and `entryB`.
void compareClasses(const program::Program &program,
                    const program::Boundary &entryA, const void *a,
                    const program::Boundary &entryB, const void *b,
                    cleave_gather_report &report);

} // namespace cleave

#endif // CLEAVE_RUNTIME_TILES_H
