// Precompiled header of the compiler's phases: cleave's dialects, and the
// interfaces of their operations. A change of one of these headers recompiles
// all phases, as it would without precompiled headers.

#include "mlir.h"

#include "cleave/Dialect/Dist/IR/Layout.h"
#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Interfaces/LocalPlan.h"
#include "cleave/Interfaces/TensorExpr.h"
