// Between whole arrays as files have them and the tiles that ranks hold.
#ifndef CLEAVE_RUNTIME_TILES_H
#define CLEAVE_RUNTIME_TILES_H

#include "cleave/program.h"
#include "cleave/runtime.h"

#include <vector>

namespace cleave {

// Elements of an array of this shape.
int64_t elementCount(const std::vector<int64_t> &shape);

// The tile of one rank. Elements past the end of the array get the bits of
// `padding`, zero where it is NULL. See cleave_session_scatter.
void scatterTile(const program::Program &program,
                 const program::Boundary &entry, cleave_dtype hostType,
                 const void *data, const void *padding, int64_t rank,
                 void *tile);

// The ranks whose tiles gatherTiles reads: one per tile, or all that have one.
std::vector<bool> neededTiles(const program::Program &program,
                              const program::Boundary &entry, bool replicas);

// `tiles[r]` is rank r's tile, NULL where it is not needed. See
// cleave_session_gather.
void gatherTiles(const program::Program &program,
                 const program::Boundary &entry, cleave_dtype hostType,
                 void *data, const std::vector<void *> &tiles,
                 cleave_gather_report *report);

// Compares what two classes hold of one buffer: the whole arrays `a` and `b`,
// gathered in the buffer's own type from the entries.
void compareClasses(const program::Program &program,
                    const program::Boundary &entryA, const void *a,
                    const program::Boundary &entryB, const void *b,
                    cleave_gather_report &report);

} // namespace cleave

#endif // CLEAVE_RUNTIME_TILES_H
