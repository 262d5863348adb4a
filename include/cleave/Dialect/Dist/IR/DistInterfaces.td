//===- DistInterfaces.td - the interface of collectives ----------*- tablegen -*-===//

#ifndef CLEAVE_DIALECT_DIST_IR_DISTINTERFACES
#define CLEAVE_DIALECT_DIST_IR_DISTINTERFACES

include "mlir/IR/OpBase.td"

def Dist_CollectiveOpInterface : OpInterface<"CollectiveOpInterface"> {
  let description = [{
    A collective runs in groups of ranks; the ranks of a group differ only in their
    coordinates on `axes`. The members of a group are ordered by the row-major index
    over the axes in the order listed. Operand i becomes result i.
  }];
  let cppNamespace = "::cleave::dist";
  let methods = [
    InterfaceMethod<"Returns the mesh.", "::mlir::FlatSymbolRefAttr", "getMeshAttr">,
    InterfaceMethod<"Returns the axes of the groups, the major axis first.", "::cleave::dist::AxisListAttr", "getAxes">,
    InterfaceMethod<"Returns the purpose of the collective.", "::cleave::dist::Purpose", "getPurpose">,
    InterfaceMethod<[{
        Returns the bytes that a rank sends with ring-optimal algorithms, in groups of
        `groupSize` ranks.
      }], "int64_t", "getSentBytes", (ins "int64_t":$groupSize)>,
    InterfaceMethod<"Returns the bytes of the logical buffer.", "int64_t", "getPayloadBytes">
  ];
}

#endif
