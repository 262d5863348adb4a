// The parts that data is read by.

#ifndef CLEAVE_TRAINER_DATAPARTS_H
#define CLEAVE_TRAINER_DATAPARTS_H

#include "cleave/io/Error.h"
#include "cleave/io/File.h"
#include "cleave/trainer/Data.h"

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace cleave {

/// A token that is beyond the model's vocabulary.
struct VocabularyError : InputError {
  using InputError::InputError;
};

/// True for labels that are the tokens that come next.
bool isShifted(const ManifestInput &input);

/// The warning of labels of which none is counted.
std::string allIgnored(const std::string &label, int64_t count,
                       int64_t ignored);

/// How many of `total` are held out: the share rounded down, but enough for
/// one sample, `least`.
int64_t heldOut(int64_t total, double share, int64_t least);

/// Throws InputError where an input's samples are not in dimension 0: they are
/// read row by row.
void requireSamplesFirst(const ManifestInput &input);

/// One long sequence of tokens of any integer type; `owner` keeps their bytes,
/// which are those of `file` where they are not in memory (else null).
std::unique_ptr<Dataset>
makeTokenDataset(std::shared_ptr<const void> owner, const MappedFile *file,
                 ArrayView tokens, const std::string &path,
                 const Manifest &manifest, const Settings &settings);

/// The arrays that the inputs read, by name.
std::set<std::string> wantedArrays(const Manifest &manifest);

/// Named arrays, a sample per row; `unread`: the names of those that are there
/// and that no input reads.
std::unique_ptr<Dataset> makeArrayDataset(std::map<std::string, Array> arrays,
                                          std::vector<std::string> unread,
                                          const std::string &path,
                                          const Manifest &manifest,
                                          const Settings &settings);

} // namespace cleave

#endif // CLEAVE_TRAINER_DATAPARTS_H
