//===- DistInterfaces.td - what collectives have in common -------*- tablegen -*-===//

#ifndef CLEAVE_DIALECT_DIST_IR_DISTINTERFACES
#define CLEAVE_DIALECT_DIST_IR_DISTINTERFACES

include "mlir/IR/OpBase.td"

def Dist_CollectiveOpInterface : OpInterface<"CollectiveOpInterface"> {
  let description = [{
    A collective among the ranks that differ only in their coordinates on
    `axes`. The members of a group are ordered by the row-major index over the
    axes in the order listed. Operand i becomes result i.
  }];
  let cppNamespace = "::cleave::dist";
  let methods = [
    InterfaceMethod<"The mesh.", "::mlir::FlatSymbolRefAttr", "getMeshAttr">,
    InterfaceMethod<"The axes, the major one first.", "::cleave::dist::AxisListAttr", "getAxes">,
    InterfaceMethod<"What it is for.", "::cleave::dist::Purpose", "getPurpose">,
    InterfaceMethod<[{
        Bytes that a rank sends under ring-optimal volumes, for groups of
        `groupSize` ranks.
      }], "int64_t", "getSentBytes", (ins "int64_t":$groupSize)>,
    InterfaceMethod<"Bytes of the logical buffer.", "int64_t", "getPayloadBytes">
  ];
}

#endif
