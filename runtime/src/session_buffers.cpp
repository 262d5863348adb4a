// Gives the host access to the named buffers of a session.

#include "error.h"
#include "positions.h"
#include "session.h"
#include "tiles.h"

#include <cmath>

using namespace cleave;
using namespace cleave::program;

const std::vector<int32_t> &
cleave_session::entriesOf(const std::string &name) const {
  auto found = program.entries.find(name);
  if (found == program.entries.end())
    fail(CLEAVE_BAD_ARGUMENT, "the program has no buffer \"" + name + "\"");
  return found->second;
}

bool cleave_session::holds(int rank, const Boundary &entry) const {
  return cleave::holds(program.data, entry, rank);
}

const Boundary &cleave_session::boundary(const std::string &name,
                                         int rank) const {
  const std::vector<int32_t> &entries = entriesOf(name);
  if (rank < 0)
    return program.data.boundary[entries.front()];
  for (int32_t index : entries)
    if (holds(rank, program.data.boundary[index]))
      return program.data.boundary[index];
  fail(CLEAVE_BAD_ARGUMENT, "rank " + std::to_string(rank) + " of class " +
                                std::to_string(program.data.classOf(rank)) +
                                " holds nothing of buffer \"" + name + "\"");
}

void *cleave_session::tile(int rank, const Boundary &entry) const {
  auto [storage, at] = place(rank, entry);
  storage->finish();
  return storage->data() + at;
}

std::pair<Storage *, int64_t>
cleave_session::place(int rank, const Boundary &entry) const {
  if (!isHere(rank))
    fail(CLEAVE_BAD_ARGUMENT, "rank " + std::to_string(rank) +
                                  " is in another process: its tiles cannot be "
                                  "touched, only scattered and gathered");
  return ranks[rank]->find(entry);
}

void cleave_session::scatter(const std::string &name, cleave_dtype type,
                             const void *data, const void *padding) {
  for (int32_t index : entriesOf(name))
    scatter(program.data.boundary[index], type, data, padding);
}

void cleave_session::scatter(const Boundary &entry, cleave_dtype type,
                             const void *data, const void *padding) {
  std::vector<char> staging;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    if (!holds(rank, entry))
      continue;
    bool here = isHere(rank);
    auto [storage, at] =
        here ? place(rank, entry) : std::pair<Storage *, int64_t>();
    if (here && storage->isHost()) {
      scatterTile(program.data, entry, type, data, padding, rank,
                  storage->data() + at);
      continue;
    }
    staging.resize(elementCount(entry.localShape) * sizeOf(entry.dtype));
    scatterTile(program.data, entry, type, data, padding, rank, staging.data());
    if (here)
      storage->write(at, staging.data(), staging.size());
    else
      remote->write(rank, entry, staging.data(), staging.size());
  }
}

// Several classes of ranks may hold the buffer; the ranks of a class run
// identical commands, and each rank of the pipeline axis has its own class.
// Gathers the buffer from the first class. If a report is requested, the whole
// arrays of the other classes are gathered, too, and compared with the first
// one.
void cleave_session::gather(const std::string &name, cleave_dtype type,
                            void *data, cleave_gather_report *report) {
  const std::vector<int32_t> &entries = entriesOf(name);
  const Boundary &first = program.data.boundary[entries.front()];
  gather(first, type, data, report);
  if (!report || entries.size() == 1)
    return;
  auto own = static_cast<cleave_dtype>(first.dtype);
  std::vector<char> whole, other;
  const void *expected = data;
  if (own != type) {
    whole.resize(elementCount(first.globalShape) * sizeOf(first.dtype));
    gather(first, own, whole.data(), nullptr);
    expected = whole.data();
  }
  other.resize(elementCount(first.globalShape) * sizeOf(first.dtype));
  for (size_t i = 1; i < entries.size(); ++i) {
    const Boundary &entry = program.data.boundary[entries[i]];
    cleave_gather_report found;
    gather(entry, own, other.data(), &found);
    if (report->identical && !found.identical) {
      report->identical = 0;
      report->rank_a = found.rank_a;
      report->rank_b = found.rank_b;
      report->element = found.element;
    }
    report->replicas += found.replicas;
    report->nonzero_padding += found.nonzero_padding;
    if (!(found.max_difference <= report->max_difference) &&
        !std::isnan(report->max_difference))
      report->max_difference = found.max_difference;
    compareClasses(program.data, first, expected, entry, other.data(), *report);
  }
}

void cleave_session::gather(const Boundary &entry, cleave_dtype type,
                            void *data, cleave_gather_report *report) {
  std::vector<void *> tiles(ranks.size());
  // If no report is requested, only one of several identical tiles is fetched.
  // For a report all tiles are fetched, and identical ones are compared.
  std::vector<bool> wanted =
      neededTiles(program.data, entry, report != nullptr);
  std::vector<std::pair<int, std::vector<char>>> fetched, copied;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    if (!wanted[rank])
      continue;
    int64_t bytes = elementCount(entry.localShape) * sizeOf(entry.dtype);
    if (!isHere(rank)) {
      fetched.emplace_back(rank, bytes);
      continue;
    }
    auto [storage, at] = place(rank, entry);
    if (storage->isHost()) {
      tiles[rank] = storage->data() + at;
      continue;
    }
    std::vector<char> &copy = copied.emplace_back(rank, bytes).second;
    storage->read(at, copy.data(), bytes);
    tiles[rank] = copy.data();
  }
  if (!fetched.empty())
    remote->read(entry, fetched);
  for (auto &[rank, bytes] : fetched)
    tiles[rank] = bytes.data();
  gatherTiles(program.data, entry, type, data, tiles, report);
}

void cleave_session::zero(const std::string &name) {
  for (int32_t index : entriesOf(name)) {
    const Boundary &entry = program.data.boundary[index];
    for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank)
      if (!holds(rank, entry))
        continue;
      else if (isHere(rank))
        zero(rank, entry);
      else
        remote->zero(rank, entry);
  }
}

void cleave_session::zero(int rank, const Boundary &entry) {
  auto [storage, at] = place(rank, entry);
  storage->zero(at, elementCount(entry.localShape) * sizeOf(entry.dtype));
}
