// RUN: cleave-opt %s -split-input-file -verify-diagnostics --check-inject-fault=kind=pad-identity
// RUN: %exits 1 cleave-opt %s --check-inject-fault=kind=drop-colective 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: %exits 1 cleave-opt %s --check-inject-fault=kind=missing-wait 2>&1 | FileCheck %s --check-prefix=WAIT
// RUN: %exits 1 cleave-opt %s "--check-inject-fault=kind=stale-buffer index=3" 2>&1 | FileCheck %s --check-prefix=INDEX

// UNKNOWN: error: unknown kind of fault 'drop-colective'; the kinds are drop-collective, sum-for-mean,
// WAIT: error: this program cannot have the fault missing-wait: it has no transfer that is waited for
// INDEX: error: index 3 of the fault stale-buffer is out of range; this program has 1 place for it

// expected-error @below {{this program cannot have the fault pad-identity: it has no padding that is masked}}
module {
  func.func @update(%w: tensor<3xf32> {nn.name = "w", nn.role = #nn.role<parameter>})
      -> (tensor<3xf32> {nn.name = "w", nn.role = #nn.role<parameter>}) {
    %new = arith.addf %w, %w : tensor<3xf32>
    return %new : tensor<3xf32>
  }
}
