// Positions of ranks on the mesh: a rank's coordinates are the digits of its
// number, the last axis fastest. These functions have their own file, because
// both commands and tiles.cpp need them.

#include "positions.h"

#include <algorithm>

using namespace cleave;
using namespace cleave::program;

std::vector<int64_t> cleave::axisIndices(const Program &program, int64_t rank) {
  std::vector<int64_t> index(program.mesh.size());
  for (size_t i = program.mesh.size(); i-- > 0;) {
    index[i] = rank % program.mesh[i].size;
    rank /= program.mesh[i].size;
  }
  return index;
}

int64_t cleave::subAxisIndex(const Program &program,
                             const std::vector<int64_t> &axisIndex,
                             const SubAxis &sub) {
  int64_t stride = program.mesh[sub.axis].size / (sub.pre * sub.size);
  return axisIndex[sub.axis] / stride % sub.size;
}

int64_t cleave::groupIndex(const Program &program,
                           const std::vector<int64_t> &axisIndex,
                           const std::vector<SubAxis> &group) {
  int64_t index = 0;
  for (const SubAxis &sub : group)
    index = index * sub.size + subAxisIndex(program, axisIndex, sub);
  return index;
}

int64_t cleave::groupSize(const std::vector<SubAxis> &group) {
  int64_t size = 1;
  for (const SubAxis &sub : group)
    size *= sub.size;
  return size;
}

int64_t cleave::groupMember(const Program &program,
                            std::vector<int64_t> axisIndex,
                            const std::vector<SubAxis> &group, int64_t index) {
  const std::vector<int64_t> own = axisIndex;
  for (size_t i = group.size(); i-- > 0;) {
    const SubAxis &sub = group[i];
    int64_t stride = program.mesh[sub.axis].size / (sub.pre * sub.size);
    axisIndex[sub.axis] +=
        (index % sub.size - subAxisIndex(program, own, sub)) * stride;
    index /= sub.size;
  }
  int64_t rank = 0;
  for (size_t axis = 0; axis < axisIndex.size(); ++axis)
    rank = rank * program.mesh[axis].size + axisIndex[axis];
  return rank;
}

int64_t cleave::ownersOf(const Program &program, const Boundary &entry) {
  int64_t places = groupSize(entry.partial);
  for (const std::vector<SubAxis> &dim : entry.sharding)
    places *= groupSize(dim);
  int64_t ranks = program.numRanks();
  if (entry.rankClass >= 0 && !program.rankClass.empty())
    ranks = std::count(program.rankClass.begin(), program.rankClass.end(),
                       static_cast<uint32_t>(entry.rankClass));
  return ranks / places;
}

bool cleave::holds(const Program &program, const Boundary &entry,
                   int64_t rank) {
  return entry.rankClass < 0 ||
         program.classOf(rank) == static_cast<uint32_t>(entry.rankClass);
}
