// Coordinates of ranks on the mesh, and the ranks that hold a buffer.
#ifndef CLEAVE_RUNTIME_POSITIONS_H
#define CLEAVE_RUNTIME_POSITIONS_H

#include "cleave/program.h"

#include <vector>

namespace cleave {

// Returns the rank's index on every mesh axis.
std::vector<int64_t> axisIndices(const program::Program &program, int64_t rank);

// subAxisIndex returns a rank's index on a sub-axis, groupIndex its index on
// several sub-axes, the first one slowest. `axisIndex` has the rank's index on
// every mesh axis.
int64_t subAxisIndex(const program::Program &program,
                     const std::vector<int64_t> &axisIndex,
                     const program::SubAxis &sub);
int64_t groupIndex(const program::Program &program,
                   const std::vector<int64_t> &axisIndex,
                   const std::vector<program::SubAxis> &group);
// Returns the number of ranks in a group.
int64_t groupSize(const std::vector<program::SubAxis> &group);
// Returns the rank at index `index` of the group that contains a given rank.
int64_t groupMember(const program::Program &program,
                    std::vector<int64_t> axisIndex,
                    const std::vector<program::SubAxis> &group, int64_t index);

// Returns whether a rank holds a tile of this boundary entry.
bool holds(const program::Program &program, const program::Boundary &entry,
           int64_t rank);

// Returns the number of ranks that hold the same tile (and, in a partial sum,
// the same term).
int64_t ownersOf(const program::Program &program,
                 const program::Boundary &entry);

} // namespace cleave

#endif // CLEAVE_RUNTIME_POSITIONS_H
