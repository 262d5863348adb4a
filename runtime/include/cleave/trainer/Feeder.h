//===- Feeder.h - fills the inputs of a program ---------------------------===//
#ifndef CLEAVE_TRAINER_FEEDER_H
#define CLEAVE_TRAINER_FEEDER_H

#include "cleave/manifest.h"
#include "cleave/trainer/Data.h"
#include "cleave/trainer/Executor.h"

#include <map>
#include <vector>

namespace cleave {

/// Samples of one microbatch: for each row the data's sample and its global
/// number; a row without a sample (-1) counts nothing.
struct FeedRow {
  int64_t sample = -1;
  int64_t number = -1;
};

class Feeder {
public:
  /// Fills the inputs that never change. Throws InputError on an input that
  /// cannot be fed.
  Feeder(const Manifest &manifest, StepExecutor &executor, int64_t ignoreIndex);

  /// Fills every input of a microbatch. `step`: the samples of the whole step,
  /// which the program may read too.
  void feed(const Dataset &data, Split split, const std::vector<FeedRow> &rows,
            const std::vector<FeedRow> &step);

  /// Scatters a whole input; rows of labels that a rank holds beyond the
  /// batch are set to the ignored index.
  void scatter(const ManifestInput &input, const ArrayView &array);

  /// Sets the scalar inputs of a role; none is fine.
  void setScalar(InputRole role, double value);
  void setInteger(InputRole role, int64_t value);

private:
  const Manifest &manifest;
  StepExecutor &executor;
  int64_t ignoreIndex;
  std::vector<ManifestInput> inputs;    // but scalars, as large as the buffers
  std::map<std::string, Array> staging; // by input
};

} // namespace cleave

#endif // CLEAVE_TRAINER_FEEDER_H
