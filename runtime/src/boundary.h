// The boundary of a program, its named buffers: whether an entry is in order,
// and the view by which it is cut.
#ifndef CLEAVE_RUNTIME_BOUNDARY_H
#define CLEAVE_RUNTIME_BOUNDARY_H

#include "cleave/program.h"

#include <map>
#include <vector>

namespace cleave {

// The ranks of each class.
class Classes {
public:
  explicit Classes(const program::Program &program);

  // All ranks for class -1.
  int64_t ranksOf(int32_t rankClass) const;
  // Whether the class is all ranks with one index on some axes.
  bool isSlice(int32_t rankClass) const;
  // Whether the ranks of the class have one index on the axis, of several.
  bool fixes(int32_t rankClass, int32_t axis) const;

private:
  struct Class {
    int64_t ranks = 0;
    std::vector<int64_t> indices; // per axis, how many the ranks have
  };
  const program::Program &program;
  std::map<int32_t, Class> classes;
};

// Throws unless shapes, view, sharding and tile fit together.
void checkBoundary(const program::Program &program, const Classes &classes,
                   const program::Boundary &entry);

// The sizes that the whole array is seen with, before they are permuted.
const std::vector<int64_t> &viewShape(const program::Boundary &entry);

// The dimension of viewShape that dimension `dim` of the viewed array is.
int64_t permuted(const program::Boundary &entry, size_t dim);

} // namespace cleave

#endif // CLEAVE_RUNTIME_BOUNDARY_H
