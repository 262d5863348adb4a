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

/// The data's sample that training sample `number` (over all epochs) is.
int64_t trainingSample(int64_t number, int64_t samples, uint64_t seed);

enum class Split { training, validation };

/// The data of a run that goes on is not what it was when it was opened.
struct DataError : RunError {
  using RunError::RunError;
};

class Dataset {
public:
  virtual ~Dataset() = default;
  virtual int64_t samples(Split split) const = 0;
  /// Writes one sample of `input` (the part of its shape after dimension 0).
  /// Throws DataError where a file does not hold it any more.
  virtual void fill(const ManifestInput &input, Split split, int64_t sample,
                    std::byte *out) const = 0;
  /// Writes the whole of an input without a batch dimension.
  virtual void fillWhole(const ManifestInput &input, std::byte *out) const = 0;
  /// Where the arrays hold a NaN or an infinity for one of these training
  /// samples; empty where they do not.
  virtual std::string firstNonFinite(const std::vector<int64_t> &) const {
    return "";
  }
  /// Throws DataError where a file that is still read has another size or time
  /// than when it was opened.
  virtual void checkUnchanged() const {}
  /// What is odd about the samples to train on, though they can be read; empty:
  /// nothing.
  virtual std::string warning() const { return ""; }
  /// How validation was held out, as JSON.
  virtual std::string split() const = 0;
  /// One line that says what was found; `use`: what the samples of
  /// Split::training are for.
  virtual std::string summary(const std::string &use = "to train on") const = 0;
};

/// Opens the data that settings.dataPath names (and settings.evalPath, from
/// which all samples of validation are where it is not empty), and checks it
/// against the program: it is long enough, every array that an input needs is
/// there with its shape, every token is in the vocabulary. Throws InputError.
std::unique_ptr<Dataset> openDataset(const Manifest &manifest,
                                     const Settings &settings);

/// True where the host makes the input up: ones, zeros, arange.
bool isGenerated(const ManifestInput &input);

/// A whole generated input.
Array generatedInput(const ManifestInput &input);

/// Refuses a token beyond the input's table, naming `label`, position, id and
/// vocabulary. `ignored` is allowed.
void checkVocabulary(const ManifestInput &input, const ArrayView &tokens,
                     const std::string &label, const int64_t *ignored);

} // namespace cleave

#endif // CLEAVE_TRAINER_DATA_H
