//===- Feeder.h - fills the inputs of a program ---------------------------===//
#ifndef CLEAVE_TRAINER_FEEDER_H
#define CLEAVE_TRAINER_FEEDER_H

#include "cleave/manifest.h"
#include "cleave/trainer/Data.h"
#include "cleave/trainer/Executor.h"

#include <map>
#include <vector>

namespace cleave {

/// One row of a microbatch. `sample` is the index in the data of the row's
/// sample, `number` the sample's number in the run. Both are -1 for a row
/// without a sample, which has weight 0 in the loss.
struct FeedRow {
  int64_t sample = -1;
  int64_t number = -1;
};

class Feeder {
public:
  /// Fills the inputs that never change. Throws InputError for an input that
  /// cannot be filled.
  Feeder(const Manifest &manifest, StepExecutor &executor, int64_t ignoreIndex);

  /// Fills all inputs of a microbatch. `step` has the rows of the whole step,
  /// which some losses read.
  void feed(const Dataset &data, Split split, const std::vector<FeedRow> &rows,
            const std::vector<FeedRow> &step);

  /// Scatters an entire input to the ranks. The buffer may have more rows than
  /// the array; in an input of labels the additional rows get the ignored
  /// index.
  void scatter(const ManifestInput &input, const ArrayView &array);

  /// Sets all scalar inputs with this role; the program may have none.
  void setScalar(InputRole role, double value);
  void setInteger(InputRole role, int64_t value);

private:
  const Manifest &manifest;
  StepExecutor &executor;
  int64_t ignoreIndex;
  std::vector<ManifestInput> inputs;    // no scalars; buffers' shapes
  std::map<std::string, Array> staging; // by input
};

} // namespace cleave

#endif // CLEAVE_TRAINER_FEEDER_H
