// RUN: cleave-opt %s --split-input-file --verify-diagnostics

// (SC1)
func.func @trips(%a: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error @below {{attribute 'trips' failed to satisfy constraint: 64-bit signless integer attribute whose value is positive}}
  %0 = nn.scan trips = 0 carries(%h = %a : tensor<2xf32>) -> tensor<2xf32> {
    nn.yield %h : tensor<2xf32>
  }
  return %0 : tensor<2xf32>
}

// -----

// (SC2)
func.func @slices(%a: tensor<2xf32>) {
  // expected-error @below {{slices a tensor of type 'tensor<2xf32>', which has no dimension 0 of 3 trips}}
  nn.scan trips = 3 slices(%h = %a : tensor<2xf32>) {
    nn.yield
  }
  return
}

// -----

// (SC2)
func.func @slices_generic(%a: tensor<2xf32>) {
  // expected-error @below {{'nn.scan' op slices a tensor of type 'tensor<2xf32>', which has no dimension 0 of 3 trips}}
  "nn.scan"(%a) <{operandSegmentSizes = array<i32: 0, 1, 0>, trips = 3 : i64}> ({
  ^bb0(%h: tensor<f32>):
    "nn.yield"() : () -> ()
  }) : (tensor<2xf32>) -> ()
  return
}

// -----

// (SC3)
func.func @arguments(%a: tensor<2xf32>) {
  // expected-error @below {{'nn.scan' op has 1 operands, but its region has 0 arguments}}
  "nn.scan"(%a) <{operandSegmentSizes = array<i32: 0, 0, 1>, trips = 3 : i64}> ({
    "nn.yield"() : () -> ()
  }) : (tensor<2xf32>) -> ()
  return
}

// -----

// (SC3)
func.func @argument_type(%a: tensor<3x2xf32>) {
  // expected-error @below {{'nn.scan' op argument 0 of the region has type 'tensor<3xf32>', expected 'tensor<2xf32>'}}
  "nn.scan"(%a) <{operandSegmentSizes = array<i32: 0, 1, 0>, trips = 3 : i64}> ({
  ^bb0(%h: tensor<3xf32>):
    "nn.yield"() : () -> ()
  }) : (tensor<3x2xf32>) -> ()
  return
}

// -----

// (SC4)
func.func @results(%a: tensor<2xf32>) {
  // expected-error @below {{'nn.scan' op carries 1 values, but has 0 results}}
  nn.scan trips = 3 carries(%h = %a : tensor<2xf32>) {
    nn.yield %h : tensor<2xf32>
  }
  return
}

// -----

// (SC4)
func.func @result_type(%a: tensor<2xf32>) -> tensor<3xf32> {
  // expected-error @below {{'nn.scan' op result 0 has type 'tensor<3xf32>', but the carried value has type 'tensor<2xf32>'}}
  %0 = nn.scan trips = 3 carries(%h = %a : tensor<2xf32>) -> tensor<3xf32> {
    nn.yield %h : tensor<2xf32>
  }
  return %0 : tensor<3xf32>
}

// -----

// (SC4)
func.func @yields(%a: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error @below {{'nn.scan' op has 1 results, but yields 2 values}}
  %0 = nn.scan trips = 3 carries(%h = %a : tensor<2xf32>) -> tensor<2xf32> {
    nn.yield %h, %h : tensor<2xf32>, tensor<2xf32>
  }
  return %0 : tensor<2xf32>
}

// -----

// (SC4)
func.func @stacked(%a: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  // expected-error @below {{'nn.scan' op yields value 1 of type 'tensor<2xf32>', but result 1 has type 'tensor<2xf32>', expected 'tensor<3x2xf32>'}}
  %0, %1 = nn.scan trips = 3 carries(%h = %a : tensor<2xf32>) -> tensor<2xf32>, tensor<2xf32> {
    nn.yield %h, %h : tensor<2xf32>, tensor<2xf32>
  }
  return %0, %1 : tensor<2xf32>, tensor<2xf32>
}

// -----

// The region reads nothing from outside.
func.func @outside(%a: tensor<2xf32>) -> tensor<2xf32> {
  // expected-note @below {{required by region isolation constraints}}
  %0 = nn.scan trips = 3 carries(%h = %a : tensor<2xf32>) -> tensor<2xf32> {
    // expected-error @below {{using value defined outside the region}}
    %1 = arith.addf %h, %a : tensor<2xf32>
    nn.yield %1 : tensor<2xf32>
  }
  return %0 : tensor<2xf32>
}
