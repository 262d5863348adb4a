// RUN: cleave-opt %s -nn-roll-experts -split-input-file -verify-diagnostics

func.func @missing_expert(%w: tensor<5x7xf32> {nn.name = "w", nn.role = #nn.role<parameter>}, %v: tensor<5x7xf32> {nn.name = "v", nn.role = #nn.role<parameter>},
                          %x: tensor<3x5xf32>, %scores: tensor<3x4xf32>) -> tensor<3x7xf32> {
  %zero = arith.constant dense<0> : tensor<3xi64>
  %two = arith.constant dense<2> : tensor<3xi64>
  %none = arith.constant dense<0.0> : tensor<3x7xf32>
  %id = nn.argmax %scores dim = 1 : tensor<3x4xf32> -> tensor<3xi64>
  %0 = arith.cmpi eq, %id, %zero : tensor<3xi64>
  %1 = nn.broadcast %0 dims = [0] : tensor<3xi1> -> tensor<3x7xi1>
  %2 = nn.einsum "ab,bc->ac" %x, %w : tensor<3x5xf32>, tensor<5x7xf32> -> tensor<3x7xf32>
  %3 = arith.select %1, %2, %none : tensor<3x7xi1>, tensor<3x7xf32>
  %4 = arith.cmpi eq, %id, %two : tensor<3xi64>
  %5 = nn.broadcast %4 dims = [0] : tensor<3xi1> -> tensor<3x7xi1>
  %6 = nn.einsum "ab,bc->ac" %x, %v : tensor<3x5xf32>, tensor<5x7xf32> -> tensor<3x7xf32>
  %7 = arith.select %5, %6, %none : tensor<3x7xi1>, tensor<3x7xf32>
  // expected-error @below {{adds up 2 of the 4 experts among which its router chooses; missing: 1, 3; tracing leaves out the experts that the sample did not choose: export the model with a loop over all experts}}
  %8 = arith.addf %3, %7 : tensor<3x7xf32>
  return %8 : tensor<3x7xf32>
}

// -----

// The scores that a router chose are read for the rows of a sample.
func.func @read_at_fixed_rows(%router: tensor<5x4xf32> {nn.name = "router", nn.role = #nn.role<parameter>}, %x: tensor<3x5xf32>) -> tensor<2x5xf32> {
  %rows = arith.constant dense<[2, 0]> : tensor<2xi64>
  %scores = nn.einsum "ab,bc->ac" %x, %router : tensor<3x5xf32>, tensor<5x4xf32> -> tensor<3x4xf32>
  // expected-error @below {{finds the largest scores, but nothing reads whose they are}}
  %p, %ids = nn.top_k %scores k = 1 : tensor<3x4xf32> -> tensor<3x1xf32>, tensor<3x1xi64>
  %0 = nn.gather %p, %rows dim = 0 : tensor<3x1xf32>, tensor<2xi64> -> tensor<2x1xf32>
  %1 = nn.gather %x, %rows dim = 0 : tensor<3x5xf32>, tensor<2xi64> -> tensor<2x5xf32>
  %2 = nn.reshape %0 : tensor<2x1xf32> -> tensor<2xf32>
  %3 = nn.broadcast %2 dims = [0] : tensor<2xf32> -> tensor<2x5xf32>
  %4 = arith.mulf %1, %3 : tensor<2x5xf32>
  return %4 : tensor<2x5xf32>
}

// -----

// The largest probability counts where a mask of the file says so.
func.func @fixed_mask(%router: tensor<5x4xf32> {nn.name = "router", nn.role = #nn.role<parameter>}, %x: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %hit = arith.constant dense<[1.0, 0.0, 1.0]> : tensor<3xf32>
  %logits = nn.einsum "ab,bc->ac" %x, %router : tensor<3x5xf32>, tensor<5x4xf32> -> tensor<3x4xf32>
  %0 = nn.softmax %logits : tensor<3x4xf32>
  // expected-error @below {{finds the largest scores, but nothing reads whose they are}}
  %1 = nn.reduce max %0 dims = [1] : tensor<3x4xf32> -> tensor<3xf32>
  %2 = arith.mulf %1, %hit : tensor<3xf32>
  %3 = nn.broadcast %2 dims = [0] : tensor<3xf32> -> tensor<3x5xf32>
  %4 = arith.mulf %x, %3 : tensor<3x5xf32>
  return %4 : tensor<3x5xf32>
}

// -----

// Scores of groups choose, and do not weigh; a slice of a token's choices (slots), and
// of what was weighed, is none of the scores.
func.func @negative_no_router(%x: tensor<3x5xf32>, %scores: tensor<3x4xf32>) -> (tensor<2x5xf32>, tensor<3xi64>) {
  %p, %ids = nn.top_k %scores k = 2 : tensor<3x4xf32> -> tensor<3x2xf32>, tensor<3x2xi64>
  %id = nn.argmax %p dim = 1 : tensor<3x2xf32> -> tensor<3xi64>
  %0 = nn.slice %p [0, 0] [3, 1] [1, 1] : tensor<3x2xf32> -> tensor<3x1xf32>
  %1 = nn.reshape %0 : tensor<3x1xf32> -> tensor<3xf32>
  %2 = nn.broadcast %1 dims = [0] : tensor<3xf32> -> tensor<3x5xf32>
  %3 = arith.mulf %x, %2 : tensor<3x5xf32>
  %4 = nn.slice %3 [1, 0] [2, 5] [1, 1] : tensor<3x5xf32> -> tensor<2x5xf32>
  return %4, %id : tensor<2x5xf32>, tensor<3xi64>
}

// -----

// Shares of the largest scores, of fixed rows, that weigh an expert by one einsum.
func.func @shares_of_fixed_rows(%router: tensor<5x4xf32> {nn.name = "router", nn.role = #nn.role<parameter>}, %x: tensor<3x5xf32>) -> tensor<2x5xf32> {
  %scores = nn.einsum "ab,bc->ac" %x, %router : tensor<3x5xf32>, tensor<5x4xf32> -> tensor<3x4xf32>
  // expected-error @below {{finds the largest scores, but nothing reads whose they are}}
  %p, %ids = nn.top_k %scores k = 2 : tensor<3x4xf32> -> tensor<3x2xf32>, tensor<3x2xi64>
  %0 = nn.reduce sum %p dims = [1] : tensor<3x2xf32> -> tensor<3xf32>
  %1 = nn.broadcast %0 dims = [0] : tensor<3xf32> -> tensor<3x2xf32>
  %2 = arith.divf %p, %1 : tensor<3x2xf32>
  %3 = nn.slice %2 [1, 0] [2, 1] [1, 1] : tensor<3x2xf32> -> tensor<2x1xf32>
  %4 = nn.reshape %3 : tensor<2x1xf32> -> tensor<2xf32>
  %5 = nn.slice %x [1, 0] [2, 5] [1, 1] : tensor<3x5xf32> -> tensor<2x5xf32>
  %6 = nn.einsum "ab,a->ab" %5, %4 : tensor<2x5xf32>, tensor<2xf32> -> tensor<2x5xf32>
  return %6 : tensor<2x5xf32>
}

// -----

// The router's columns are scaled to one length before they score anything.
func.func @router_of_unit_columns(%router: tensor<5x4xf32> {nn.name = "router", nn.role = #nn.role<parameter>}, %x: tensor<3x5xf32>) -> tensor<2x5xf32> {
  %rows = arith.constant dense<[2, 0]> : tensor<2xi64>
  %squares = arith.mulf %router, %router : tensor<5x4xf32>
  %length = nn.reduce sum %squares dims = [0] : tensor<5x4xf32> -> tensor<4xf32>
  %lengths = nn.broadcast %length dims = [1] : tensor<4xf32> -> tensor<5x4xf32>
  %inverse = math.rsqrt %lengths : tensor<5x4xf32>
  %columns = arith.mulf %router, %inverse : tensor<5x4xf32>
  %scores = nn.einsum "ab,bc->ac" %x, %columns : tensor<3x5xf32>, tensor<5x4xf32> -> tensor<3x4xf32>
  // expected-error @below {{finds the largest scores, but nothing reads whose they are}}
  %p, %ids = nn.top_k %scores k = 1 : tensor<3x4xf32> -> tensor<3x1xf32>, tensor<3x1xi64>
  %0 = nn.gather %p, %rows dim = 0 : tensor<3x1xf32>, tensor<2xi64> -> tensor<2x1xf32>
  %1 = nn.gather %x, %rows dim = 0 : tensor<3x5xf32>, tensor<2xi64> -> tensor<2x5xf32>
  %2 = nn.reshape %0 : tensor<2x1xf32> -> tensor<2xf32>
  %3 = nn.broadcast %2 dims = [0] : tensor<2xf32> -> tensor<2x5xf32>
  %4 = arith.mulf %1, %3 : tensor<2x5xf32>
  return %4 : tensor<2x5xf32>
}

// -----

// Data alone, multiplied by data.
func.func @negative_products_of_data(%x: tensor<3x5xf32>, %z: tensor<5x4xf32>) -> tensor<2x5xf32> {
  %rows = arith.constant dense<[2, 0]> : tensor<2xi64>
  %scores = nn.einsum "ab,bc->ac" %x, %z : tensor<3x5xf32>, tensor<5x4xf32> -> tensor<3x4xf32>
  %p, %ids = nn.top_k %scores k = 1 : tensor<3x4xf32> -> tensor<3x1xf32>, tensor<3x1xi64>
  %0 = nn.gather %p, %rows dim = 0 : tensor<3x1xf32>, tensor<2xi64> -> tensor<2x1xf32>
  %1 = nn.gather %x, %rows dim = 0 : tensor<3x5xf32>, tensor<2xi64> -> tensor<2x5xf32>
  %2 = nn.reshape %0 : tensor<2x1xf32> -> tensor<2xf32>
  %3 = nn.broadcast %2 dims = [0] : tensor<2xf32> -> tensor<2x5xf32>
  %4 = arith.mulf %1, %3 : tensor<2x5xf32>
  return %4 : tensor<2x5xf32>
}

// -----

// Largest numbers of data that no matrix scored.
func.func @negative_no_scores(%x: tensor<3x5xf32>, %y: tensor<3x4xf32>) -> tensor<2x5xf32> {
  %rows = arith.constant dense<[2, 0]> : tensor<2xi64>
  %p, %ids = nn.top_k %y k = 1 : tensor<3x4xf32> -> tensor<3x1xf32>, tensor<3x1xi64>
  %0 = nn.gather %p, %rows dim = 0 : tensor<3x1xf32>, tensor<2xi64> -> tensor<2x1xf32>
  %1 = nn.gather %x, %rows dim = 0 : tensor<3x5xf32>, tensor<2xi64> -> tensor<2x5xf32>
  %2 = nn.reshape %0 : tensor<2x1xf32> -> tensor<2xf32>
  %3 = nn.broadcast %2 dims = [0] : tensor<2xf32> -> tensor<2x5xf32>
  %4 = arith.mulf %1, %3 : tensor<2x5xf32>
  return %4 : tensor<2x5xf32>
}

// -----

// The largest scores of fixed rows, and masked ones, are results themselves.
func.func @negative_no_weights(%router: tensor<5x4xf32> {nn.name = "router", nn.role = #nn.role<parameter>}, %x: tensor<3x5xf32>) -> (tensor<2x2xf32>, tensor<3x2xf32>) {
  %rows = arith.constant dense<[2, 0]> : tensor<2xi64>
  %hit = arith.constant dense<[[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]> : tensor<3x2xf32>
  %scores = nn.einsum "ab,bc->ac" %x, %router : tensor<3x5xf32>, tensor<5x4xf32> -> tensor<3x4xf32>
  %p, %ids = nn.top_k %scores k = 2 : tensor<3x4xf32> -> tensor<3x2xf32>, tensor<3x2xi64>
  %0 = nn.gather %p, %rows dim = 0 : tensor<3x2xf32>, tensor<2xi64> -> tensor<2x2xf32>
  %1 = arith.mulf %0, %0 : tensor<2x2xf32>
  %2 = arith.mulf %p, %hit : tensor<3x2xf32>
  return %1, %2 : tensor<2x2xf32>, tensor<3x2xf32>
}

// -----

// Zeros with which a sum begins stand for no expert.
func.func @missing_after_zeros(%w: tensor<5x7xf32> {nn.name = "w", nn.role = #nn.role<parameter>}, %v: tensor<5x7xf32> {nn.name = "v", nn.role = #nn.role<parameter>},
                                %x: tensor<3x5xf32>, %r: tensor<3x7xf32>, %scores: tensor<3x3xf32>) -> tensor<3x7xf32> {
  %zero = arith.constant dense<0> : tensor<3xi64>
  %two = arith.constant dense<2> : tensor<3xi64>
  %none = arith.constant dense<0.0> : tensor<3x7xf32>
  %id = nn.argmax %scores dim = 1 : tensor<3x3xf32> -> tensor<3xi64>
  %0 = arith.cmpi eq, %id, %zero : tensor<3xi64>
  %1 = nn.broadcast %0 dims = [0] : tensor<3xi1> -> tensor<3x7xi1>
  %2 = nn.einsum "ab,bc->ac" %x, %w : tensor<3x5xf32>, tensor<5x7xf32> -> tensor<3x7xf32>
  %3 = arith.select %1, %2, %none : tensor<3x7xi1>, tensor<3x7xf32>
  %4 = arith.addf %3, %none : tensor<3x7xf32>
  %5 = arith.cmpi eq, %id, %two : tensor<3xi64>
  %6 = nn.broadcast %5 dims = [0] : tensor<3xi1> -> tensor<3x7xi1>
  %7 = nn.einsum "ab,bc->ac" %x, %v : tensor<3x5xf32>, tensor<5x7xf32> -> tensor<3x7xf32>
  %8 = arith.select %6, %7, %none : tensor<3x7xi1>, tensor<3x7xf32>
  %9 = arith.addf %4, %8 : tensor<3x7xf32>
  // expected-error @below {{adds up 2 of the 3 experts among which its router chooses; missing: 1}}
  %10 = arith.addf %r, %9 : tensor<3x7xf32>
  return %10 : tensor<3x7xf32>
}
