//===- Data.h - what a model is trained on --------------------------------===//
//
// A data set provides the arrays of one sample at a time. The order of samples
// depends only on the seed and on the number of each sample, so that every
// mesh, every number of microbatches and every resumed run sees the same order
// (docs/manifest.md, "Samples").
//
//===----------------------------------------------------------------------===//
#ifndef CLEAVE_TRAINER_DATA_H
#define CLEAVE_TRAINER_DATA_H

#include "cleave/io/Array.h"
#include "cleave/io/Error.h"
#include "cleave/manifest.h"
#include "cleave/trainer/Settings.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace cleave {

/// A pseudo-random permutation of [0, size): `at(i)` without a table.
class Permutation {
public:
  Permutation(uint64_t size, uint64_t seed, uint64_t epoch);
  uint64_t at(uint64_t index) const;

private:
  uint64_t size, key;
  int halfBits;
};

/// Returns the index in the data of training sample `number`, which is counted
/// over all epochs.
int64_t trainingSample(int64_t number, int64_t samples, uint64_t seed);

enum class Split { training, validation };

/// Thrown if the data has changed since the running job opened it.
struct DataError : RunError {
  using RunError::RunError;
};

class Dataset {
public:
  virtual ~Dataset() = default;
  virtual int64_t samples(Split split) const = 0;
  /// Writes one sample of `input` to `out`; its shape is that of the input
  /// without dimension 0. Throws DataError if a data file has been truncated
  /// since it was opened.
  virtual void fill(const ManifestInput &input, Split split, int64_t sample,
                    std::byte *out) const = 0;
  /// Writes an entire input that has no batch dimension.
  virtual void fillWhole(const ManifestInput &input, std::byte *out) const = 0;
  /// Describes the first NaN or infinity in the arrays of these training
  /// samples; empty if all values are finite.
  virtual std::string firstNonFinite(const std::vector<int64_t> &) const {
    return "";
  }
  /// Throws DataError if the size or modification time of an open file has
  /// changed since it was opened.
  virtual void checkUnchanged() const {}
  /// Returns a warning about training samples that can be read but look wrong;
  /// empty if there is none.
  virtual std::string warning() const { return ""; }
  /// Describes, as JSON, how validation samples were held out.
  virtual std::string split() const = 0;
  /// Returns one line that describes the data set. `use` says for what the
  /// samples of Split::training are used.
  virtual std::string summary(const std::string &use = "to train on") const = 0;
};

/// Opens the data that settings.dataPath names. If settings.evalPath is set,
/// all validation samples come from there. Checks the data against the program:
/// it has enough samples, every array that an input needs exists with its
/// shape, and every token is in the vocabulary. Throws InputError.
std::unique_ptr<Dataset> openDataset(const Manifest &manifest,
                                     const Settings &settings);

/// Returns true if the host generates the input itself (ones, zeros, arange).
bool isGenerated(const ManifestInput &input);

/// Returns an entire input that the host generates.
Array generatedInput(const ManifestInput &input);

/// Throws InputError if a token id is beyond the table that the input indexes.
/// The message names `label`, position, id and vocabulary size. The id
/// `ignored` is allowed.
void checkVocabulary(const ManifestInput &input, const ArrayView &tokens,
                     const std::string &label, const int64_t *ignored);

} // namespace cleave

#endif // CLEAVE_TRAINER_DATA_H
