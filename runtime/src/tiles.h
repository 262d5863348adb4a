// Between whole arrays as files have them and the tiles that ranks hold.
#ifndef CLEAVE_RUNTIME_TILES_H
#define CLEAVE_RUNTIME_TILES_H

#include "cleave/program.h"
#include "cleave/runtime.h"

#include <map>
#include <string>
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

// Whether a rank has a tile of this entry.
bool holds(const program::Program &program, const program::Boundary &entry,
           int64_t rank);

int64_t elementCount(const std::vector<int64_t> &shape);

// Position of a rank on a sub-axis, and on several, the first one slowest.
int64_t subAxisIndex(const program::Program &program,
                     const std::vector<int64_t> &axisIndex,
                     const program::SubAxis &sub);
int64_t groupIndex(const program::Program &program,
                   const std::vector<int64_t> &axisIndex,
                   const std::vector<program::SubAxis> &group);
int64_t groupSize(const std::vector<program::SubAxis> &group);
// The rank at position `index` of the group that a rank is in.
int64_t groupMember(const program::Program &program,
                    std::vector<int64_t> axisIndex,
                    const std::vector<program::SubAxis> &group, int64_t index);
std::vector<int64_t> axisIndices(const program::Program &program, int64_t rank);

// Ranks that hold the same tile (and the same share of a partial value).
int64_t ownersOf(const program::Program &program,
                 const program::Boundary &entry);

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
