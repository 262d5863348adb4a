// A context with the dialects of sharded programs that collects error messages.
#ifndef CLEAVE_TEST_UNIT_PARTITION_CONTEXT_H
#define CLEAVE_TEST_UNIT_PARTITION_CONTEXT_H

#include "cleave/Dialect/Dist/IR/Dist.h"
#include "cleave/Dialect/NN/IR/NN.h"
#include "cleave/Interfaces/Interfaces.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Diagnostics.h"

#include <string>

struct TestContext {
  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
  std::string diagnostics;

  TestContext() {
    mlir::DialectRegistry registry;
    registry.insert<mlir::arith::ArithDialect, mlir::func::FuncDialect,
                    mlir::math::MathDialect, mlir::scf::SCFDialect,
                    mlir::tensor::TensorDialect, cleave::dist::DistDialect,
                    cleave::nn::NNDialect>();
    cleave::registerInterfaceModels(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
  }

private:
  mlir::ScopedDiagnosticHandler handler{
      &context, [this](mlir::Diagnostic &diagnostic) {
        if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error)
          diagnostics += diagnostic.str() + "\n";
        return mlir::success();
      }};
};

#endif
