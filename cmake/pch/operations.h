// What the phases include beside MLIR: our dialects and the interfaces that
// their operations answer. A change of one of these compiles all that is above
// them, as it would without this header.

#include "mlir.h"

#include "cleave/Dialect/Dist/IR/Layout.h"
#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Interfaces/LocalPlan.h"
#include "cleave/Interfaces/TensorExpr.h"
