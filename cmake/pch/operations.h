// Precompiled header of the compiler's phases: cleave's dialects, and the
// interfaces of their operations. If one of these headers changes, all phases
// are recompiled, as they would be without a precompiled header.

#include "mlir.h"

#include "cleave/Dialect/Dist/IR/Layout.h"
#include "cleave/Dialect/NN/IR/Batch.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Dialect/Pipe/IR/Pipe.h"
#include "cleave/Dialect/RT/IR/RT.h"
#include "cleave/Interfaces/Interfaces.h"
#include "cleave/Interfaces/LocalPlan.h"
#include "cleave/Interfaces/TensorExpr.h"
