// Checks the boundary entries of a program (its named buffers), and computes
// the view in which their arrays are cut into tiles.
#ifndef CLEAVE_RUNTIME_BOUNDARY_H
#define CLEAVE_RUNTIME_BOUNDARY_H

#include "cleave/program.h"

#include <map>
#include <vector>

namespace cleave {

// The classes of ranks of a program. The ranks of one class run identical
// commands; in a pipeline they have the same index on the pipeline axis.
class Classes {
public:
  explicit Classes(const program::Program &program);

  // Returns the number of ranks of a class; class -1 has all ranks.
  int64_t ranksOf(int32_t rankClass) const;
  // Returns whether there are mesh axes and an index on each of them such that
  // the class contains exactly the ranks with these indices.
  bool isSlice(int32_t rankClass) const;
  // Returns whether the axis has several indices, but all ranks of the class
  // have the same one.
  bool fixes(int32_t rankClass, int32_t axis) const;

private:
  struct Class {
    int64_t ranks = 0;
    std::vector<int64_t> indices; // per axis: the number of different indices
  };
  const program::Program &program;
  std::map<int32_t, Class> classes;
};

// Throws unless shape, view, sharding and tile of the entry are consistent.
void checkBoundary(const program::Program &program, const Classes &classes,
                   const program::Boundary &entry);

// Returns the shape to which the whole array is reshaped before its dimensions
// are permuted and it is cut into tiles (see program::Boundary).
const std::vector<int64_t> &viewShape(const program::Boundary &entry);

// Returns the dimension of viewShape that becomes dimension `dim` of the
// permuted array.
int64_t permuted(const program::Boundary &entry, size_t dim);

} // namespace cleave

#endif // CLEAVE_RUNTIME_BOUNDARY_H
