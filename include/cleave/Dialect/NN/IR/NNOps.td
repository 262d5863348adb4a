// Includes all operations of the nn dialect. Each included file defines
// operations of one kind, such as shape operations or contractions.

#ifndef CLEAVE_DIALECT_NN_IR_NNOPS_TD
#define CLEAVE_DIALECT_NN_IR_NNOPS_TD

include "cleave/Dialect/NN/IR/NNDialect.td"
include "cleave/Dialect/NN/IR/NNAttrs.td"
include "cleave/Dialect/NN/IR/NNShapeOps.td"
include "cleave/Dialect/NN/IR/NNContractionOps.td"
include "cleave/Dialect/NN/IR/NNIndexingOps.td"
include "cleave/Dialect/NN/IR/NNNormalizationOps.td"
include "cleave/Dialect/NN/IR/NNAttentionOps.td"
include "cleave/Dialect/NN/IR/NNExpertOps.td"
include "cleave/Dialect/NN/IR/NNTrainingOps.td"
include "cleave/Dialect/NN/IR/NNConvolutionOps.td"
include "cleave/Dialect/NN/IR/NNControlOps.td"

#endif
