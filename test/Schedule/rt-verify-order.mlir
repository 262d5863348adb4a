// RUN: cleave-opt %s --rt-verify-order -split-input-file -verify-diagnostics

func.func private @k(tensor<8xf32>) -> tensor<8xf32>

func.func @ended(%x: tensor<8xf32>) -> tensor<8xf32> {
  %1:2 = rt.collective all_reduce(%x) group = [0, 1, 2] layout = [1, 8, 1, 8] purpose = "gradient"
    : (tensor<8xf32>) -> (tensor<8xf32>, !rt.token)
  %2 = rt.launch @k(%x) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  %3 = rt.wait %1#1 values(%1#0) sources(%x) : (!rt.token, tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %3 : tensor<8xf32>
}

// -----

func.func @never_ended(%x: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error @below {{'rt.collective' op starts and is never ended by an rt.wait}}
  %1:2 = rt.collective all_reduce(%x) group = [0, 1, 2] layout = [1, 8, 1, 8] purpose = "gradient"
    : (tensor<8xf32>) -> (tensor<8xf32>, !rt.token)
  return %x : tensor<8xf32>
}

// -----

func.func private @k(tensor<8xf32>) -> tensor<8xf32>

func.func @read_in_flight(%x: tensor<8xf32>) -> tensor<8xf32> {
  %1:2 = rt.collective all_reduce(%x) group = [0, 1, 2] layout = [1, 8, 1, 8] purpose = "gradient"
    : (tensor<8xf32>) -> (tensor<8xf32>, !rt.token)
  // expected-error @below {{'rt.launch' op reads what a collective still writes; read the results of its rt.wait}}
  %2 = rt.launch @k(%1#0) extent = 8 grain = 1 : (tensor<8xf32>) -> tensor<8xf32>
  %3 = rt.wait %1#1 values(%1#0) sources(%x) : (!rt.token, tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %2 : tensor<8xf32>
}

// -----

func.func @overwritten_in_flight(%x: tensor<4x4xf32>, %y: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %1:2 = rt.collective all_reduce(%y) group = [0, 1, 2] layout = [1, 16, 1, 16] purpose = "gradient"
    : (tensor<4x4xf32>) -> (tensor<4x4xf32>, !rt.token)
  // expected-error @below {{'rt.gemm' op overwrites what a collective still reads}}
  %2 = rt.gemm a(%x [0, 4, 1]) b(%x [0, 4, 1]) accumulate(%y) c [0, 4, 1] m = 4 n = 4 k = 4
    : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %3 = rt.wait %1#1 values(%1#0) sources(%y) : (!rt.token, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %2 : tensor<4x4xf32>
}
