// Where ranks are on the mesh, and which of them hold a buffer.
#ifndef CLEAVE_RUNTIME_POSITIONS_H
#define CLEAVE_RUNTIME_POSITIONS_H

#include "cleave/program.h"

#include <vector>

namespace cleave {

// The rank's index on every axis.
std::vector<int64_t> axisIndices(const program::Program &program, int64_t rank);

// Position of a rank on a sub-axis, and on several, the first one slowest.
int64_t subAxisIndex(const program::Program &program,
                     const std::vector<int64_t> &axisIndex,
                     const program::SubAxis &sub);
int64_t groupIndex(const program::Program &program,
                   const std::vector<int64_t> &axisIndex,
                   const std::vector<program::SubAxis> &group);
// Ranks of one group.
int64_t groupSize(const std::vector<program::SubAxis> &group);
// The rank at position `index` of the group that a rank is in.
int64_t groupMember(const program::Program &program,
                    std::vector<int64_t> axisIndex,
                    const std::vector<program::SubAxis> &group, int64_t index);

// Whether a rank has a tile of this entry.
bool holds(const program::Program &program, const program::Boundary &entry,
           int64_t rank);

// Ranks that hold the same tile (and the same share of a partial value).
int64_t ownersOf(const program::Program &program,
                 const program::Boundary &entry);

} // namespace cleave

#endif // CLEAVE_RUNTIME_POSITIONS_H
