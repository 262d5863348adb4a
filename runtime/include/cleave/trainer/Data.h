//===- Data.h - what a model is trained on --------------------------------===//
//
// A data set gives the arrays of one sample. Which sample comes when is a
// function of the seed and the sample's number alone, so that every mesh, every
// number of microbatches and every resumed run sees the same order
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

/// Returns the sample of the data that is used as training sample `number`,
/// counted over all epochs.
int64_t trainingSample(int64_t number, int64_t samples, uint64_t seed);

enum class Split { training, validation };

/// Thrown if the data of a running job differs from what it was when it was
/// opened.
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
  /// Throws DataError if an open file has another size or time than when it was
  /// opened.
  virtual void checkUnchanged() const {}
  /// A warning about training samples that can be read but look wrong; empty if
  /// there is none.
  virtual std::string warning() const { return ""; }
  /// How validation was held out, as JSON.
  virtual std::string split() const = 0;
  /// One line that describes the data set. `use` says what the samples of
  /// Split::training are for.
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

/// A whole generated input.
Array generatedInput(const ManifestInput &input);

/// Throws InputError for a token that is beyond the input's table; the message
/// names `label`, position, id and vocabulary size. The id `ignored` is
/// allowed.
void checkVocabulary(const ManifestInput &input, const ArrayView &tokens,
                     const std::string &label, const int64_t *ignored);

} // namespace cleave

#endif // CLEAVE_TRAINER_DATA_H
