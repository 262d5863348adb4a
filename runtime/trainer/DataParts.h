// Functions that the readers of training data share.

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

/// Thrown if a token is beyond the model's vocabulary.
struct VocabularyError : InputError {
  using InputError::InputError;
};

/// Returns whether the input's labels are the next tokens of the sequence.
bool isShifted(const ManifestInput &input);

/// Returns the warning that all `count` labels have the ignored value.
std::string allIgnored(const std::string &label, int64_t count,
                       int64_t ignored);

/// Returns how many of `total` samples are held out for validation: `share` of
/// them, rounded down, but at least `least`.
int64_t heldOut(int64_t total, double share, int64_t least);

/// Throws InputError if the samples of an input are not in dimension 0, because
/// data is read by rows.
void requireSamplesFirst(const ManifestInput &input);

/// Makes a data set of one long sequence of tokens of any integer type. `owner`
/// keeps the memory of the tokens alive; `file` is the file that they are
/// mapped from, or null.
std::unique_ptr<Dataset>
makeTokenDataset(std::shared_ptr<const void> owner, const MappedFile *file,
                 ArrayView tokens, const std::string &path,
                 const Manifest &manifest, const Settings &settings);

/// Returns the names of the arrays that the inputs read.
std::set<std::string> wantedArrays(const Manifest &manifest);

/// Makes a data set of named arrays with one sample per row. `unread` has the
/// names of the arrays that no input reads.
std::unique_ptr<Dataset> makeArrayDataset(std::map<std::string, Array> arrays,
                                          std::vector<std::string> unread,
                                          const std::string &path,
                                          const Manifest &manifest,
                                          const Settings &settings);

} // namespace cleave

#endif // CLEAVE_TRAINER_DATAPARTS_H
