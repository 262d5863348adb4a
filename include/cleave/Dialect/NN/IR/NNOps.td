// Operations of the nn dialect, one file per family.

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
