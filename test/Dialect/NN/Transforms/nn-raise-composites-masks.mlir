// RUN: cleave-opt %s -nn-raise-composites | FileCheck %s

// Masks and softcaps of attention that are recognized, and masks that must stay a bias.

// i - j < 3 and i - j >= 0.
// CHECK-LABEL: func @differences
// CHECK-NOT:     arith.cmpi
// CHECK:         nn.attention {{.*}} scale = 1.000000e+00 causal window = 3 :
func.func @differences(%q: tensor<2x5x4xf32>, %k: tensor<2x5x4xf32>, %v: tensor<2x5x4xf32>) -> tensor<2x5x4xf32> {
  %hidden = arith.constant dense<0xFF800000> : tensor<2x5x5xf32>
  %i = nn.iota dim = 0 : tensor<5xi64>
  %j = nn.iota dim = 0 : tensor<5xi64>
  %row = nn.broadcast %i dims = [1] : tensor<5xi64> -> tensor<2x5x5xi64>
  %column = nn.broadcast %j dims = [2] : tensor<5xi64> -> tensor<2x5x5xi64>
  %three = arith.constant dense<3> : tensor<2x5x5xi64>
  %zero = arith.constant dense<0> : tensor<2x5x5xi64>
  %d = arith.subi %row, %column : tensor<2x5x5xi64>
  %near = arith.cmpi slt, %d, %three : tensor<2x5x5xi64>
  %past = arith.cmpi sge, %d, %zero : tensor<2x5x5xi64>
  %mask = arith.andi %past, %near : tensor<2x5x5xi1>
  %s = nn.einsum "bsd,btd->bst" %q, %k : tensor<2x5x4xf32>, tensor<2x5x4xf32> -> tensor<2x5x5xf32>
  %m = arith.select %mask, %s, %hidden : tensor<2x5x5xi1>, tensor<2x5x5xf32>
  %p = nn.softmax %m : tensor<2x5x5xf32>
  %o = nn.einsum "bst,bte->bse" %p, %v : tensor<2x5x5xf32>, tensor<2x5x4xf32> -> tensor<2x5x4xf32>
  return %o : tensor<2x5x4xf32>
}

// j <= i and j >= i + (-2).
// CHECK-LABEL: func @negative_constant
// CHECK-NOT:     arith.cmpi
// CHECK:         nn.attention {{.*}} scale = 1.000000e+00 causal window = 3 :
func.func @negative_constant(%q: tensor<2x5x4xf32>, %k: tensor<2x5x4xf32>, %v: tensor<2x5x4xf32>) -> tensor<2x5x4xf32> {
  %hidden = arith.constant dense<0xFF800000> : tensor<2x5x5xf32>
  %i = nn.iota dim = 0 : tensor<5xi64>
  %back = arith.constant dense<-2> : tensor<5xi64>
  %start = arith.addi %i, %back : tensor<5xi64>
  %row = nn.broadcast %i dims = [1] : tensor<5xi64> -> tensor<2x5x5xi64>
  %first = nn.broadcast %start dims = [1] : tensor<5xi64> -> tensor<2x5x5xi64>
  %column = nn.broadcast %i dims = [2] : tensor<5xi64> -> tensor<2x5x5xi64>
  %past = arith.cmpi sle, %column, %row : tensor<2x5x5xi64>
  %near = arith.cmpi sge, %column, %first : tensor<2x5x5xi64>
  %mask = arith.andi %past, %near : tensor<2x5x5xi1>
  %s = nn.einsum "bsd,btd->bst" %q, %k : tensor<2x5x4xf32>, tensor<2x5x4xf32> -> tensor<2x5x5xf32>
  %m = arith.select %mask, %s, %hidden : tensor<2x5x5xi1>, tensor<2x5x5xf32>
  %p = nn.softmax %m : tensor<2x5x5xf32>
  %o = nn.einsum "bst,bte->bse" %p, %v : tensor<2x5x5xf32>, tensor<2x5x4xf32> -> tensor<2x5x4xf32>
  return %o : tensor<2x5x4xf32>
}

// |j - i| <= 2, which is no causal mask.
// CHECK-LABEL: func @both_sides
// CHECK-NOT:     arith.cmpi
// CHECK:         nn.attention {{.*}} scale = 1.000000e+00 window = 3 :
func.func @both_sides(%q: tensor<2x5x4xf32>, %k: tensor<2x5x4xf32>, %v: tensor<2x5x4xf32>) -> tensor<2x5x4xf32> {
  %hidden = arith.constant dense<0xFF800000> : tensor<2x5x5xf32>
  %i = nn.iota dim = 0 : tensor<5xi64>
  %j = nn.iota dim = 0 : tensor<5xi64>
  %row = nn.broadcast %i dims = [1] : tensor<5xi64> -> tensor<2x5x5xi64>
  %column = nn.broadcast %j dims = [2] : tensor<5xi64> -> tensor<2x5x5xi64>
  %two = arith.constant dense<2> : tensor<2x5x5xi64>
  %d = arith.subi %column, %row : tensor<2x5x5xi64>
  %far = math.absi %d : tensor<2x5x5xi64>
  %mask = arith.cmpi sle, %far, %two : tensor<2x5x5xi64>
  %s = nn.einsum "bsd,btd->bst" %q, %k : tensor<2x5x4xf32>, tensor<2x5x4xf32> -> tensor<2x5x5xf32>
  %m = arith.select %mask, %s, %hidden : tensor<2x5x5xi1>, tensor<2x5x5xf32>
  %p = nn.softmax %m : tensor<2x5x5xf32>
  %o = nn.einsum "bst,bte->bse" %p, %v : tensor<2x5x5xf32>, tensor<2x5x4xf32> -> tensor<2x5x4xf32>
  return %o : tensor<2x5x4xf32>
}

// i - 3 <= j <= i + 1: a window of five whose last key is one position later.
// CHECK-LABEL: func @uneven
// CHECK-DAG:     %[[KEYS:.+]] = nn.iota
// CHECK-DAG:     %[[ONE:.+]] = arith.constant dense<1> : tensor<5xi64>
// CHECK:         %[[QUERIES:.+]] = arith.addi %{{.+}}, %[[ONE]]
// CHECK:         nn.attention {{.*}} positions(%[[QUERIES]], %{{.+}}) scale = 1.000000e+00 causal window = 5 :
func.func @uneven(%q: tensor<2x5x4xf32>, %k: tensor<2x5x4xf32>, %v: tensor<2x5x4xf32>) -> tensor<2x5x4xf32> {
  %hidden = arith.constant dense<0xFF800000> : tensor<2x5x5xf32>
  %i = nn.iota dim = 0 : tensor<5xi64>
  %j = nn.iota dim = 0 : tensor<5xi64>
  %row = nn.broadcast %i dims = [1] : tensor<5xi64> -> tensor<2x5x5xi64>
  %column = nn.broadcast %j dims = [2] : tensor<5xi64> -> tensor<2x5x5xi64>
  %one = arith.constant dense<1> : tensor<2x5x5xi64>
  %three = arith.constant dense<3> : tensor<2x5x5xi64>
  %last = arith.addi %row, %one : tensor<2x5x5xi64>
  %first = arith.subi %row, %three : tensor<2x5x5xi64>
  %before = arith.cmpi sle, %column, %last : tensor<2x5x5xi64>
  %after = arith.cmpi sge, %column, %first : tensor<2x5x5xi64>
  %mask = arith.andi %before, %after : tensor<2x5x5xi1>
  %s = nn.einsum "bsd,btd->bst" %q, %k : tensor<2x5x4xf32>, tensor<2x5x4xf32> -> tensor<2x5x5xf32>
  %m = arith.select %mask, %s, %hidden : tensor<2x5x5xi1>, tensor<2x5x5xf32>
  %p = nn.softmax %m : tensor<2x5x5xf32>
  %o = nn.einsum "bst,bte->bse" %p, %v : tensor<2x5x5xf32>, tensor<2x5x4xf32> -> tensor<2x5x4xf32>
  return %o : tensor<2x5x4xf32>
}

// A window longer than the sequence hides nothing.
// CHECK-LABEL: func @wide
// CHECK-NOT:     arith.cmpi
// CHECK:         nn.attention {{.*}} scale = 1.000000e+00 causal :
func.func @wide(%q: tensor<2x5x4xf32>, %k: tensor<2x5x4xf32>, %v: tensor<2x5x4xf32>) -> tensor<2x5x4xf32> {
  %hidden = arith.constant dense<0xFF800000> : tensor<2x5x5xf32>
  %i = nn.iota dim = 0 : tensor<5xi64>
  %j = nn.iota dim = 0 : tensor<5xi64>
  %row = nn.broadcast %i dims = [1] : tensor<5xi64> -> tensor<2x5x5xi64>
  %column = nn.broadcast %j dims = [2] : tensor<5xi64> -> tensor<2x5x5xi64>
  %many = arith.constant dense<4096> : tensor<2x5x5xi64>
  %first = arith.subi %row, %many : tensor<2x5x5xi64>
  %past = arith.cmpi sle, %column, %row : tensor<2x5x5xi64>
  %near = arith.cmpi sgt, %column, %first : tensor<2x5x5xi64>
  %mask = arith.andi %past, %near : tensor<2x5x5xi1>
  %s = nn.einsum "bsd,btd->bst" %q, %k : tensor<2x5x4xf32>, tensor<2x5x4xf32> -> tensor<2x5x5xf32>
  %m = arith.select %mask, %s, %hidden : tensor<2x5x5xi1>, tensor<2x5x5xf32>
  %p = nn.softmax %m : tensor<2x5x5xf32>
  %o = nn.einsum "bst,bte->bse" %p, %v : tensor<2x5x5xf32>, tensor<2x5x4xf32> -> tensor<2x5x4xf32>
  return %o : tensor<2x5x4xf32>
}

// Bounded below only: not an attention window.
// CHECK-LABEL: func @negative_later_keys
// CHECK:         arith.cmpi sge
// CHECK:         nn.attention {{.*}} bias(%{{.+}}) scale = 1.000000e+00 :
func.func @negative_later_keys(%q: tensor<2x5x4xf32>, %k: tensor<2x5x4xf32>, %v: tensor<2x5x4xf32>) -> tensor<2x5x4xf32> {
  %hidden = arith.constant dense<0xFF800000> : tensor<2x5x5xf32>
  %i = nn.iota dim = 0 : tensor<5xi64>
  %j = nn.iota dim = 0 : tensor<5xi64>
  %row = nn.broadcast %i dims = [1] : tensor<5xi64> -> tensor<2x5x5xi64>
  %column = nn.broadcast %j dims = [2] : tensor<5xi64> -> tensor<2x5x5xi64>
  %two = arith.constant dense<2> : tensor<2x5x5xi64>
  %first = arith.subi %row, %two : tensor<2x5x5xi64>
  %mask = arith.cmpi sge, %column, %first : tensor<2x5x5xi64>
  %s = nn.einsum "bsd,btd->bst" %q, %k : tensor<2x5x4xf32>, tensor<2x5x4xf32> -> tensor<2x5x5xf32>
  %m = arith.select %mask, %s, %hidden : tensor<2x5x5xi1>, tensor<2x5x5xf32>
  %p = nn.softmax %m : tensor<2x5x5xf32>
  %o = nn.einsum "bst,bte->bse" %p, %v : tensor<2x5x5xf32>, tensor<2x5x4xf32> -> tensor<2x5x4xf32>
  return %o : tensor<2x5x4xf32>
}

// |j - i| >= 2 is not a band.
// CHECK-LABEL: func @negative_far_keys
// CHECK:         math.absi
// CHECK:         nn.attention {{.*}} bias(%{{.+}}) scale = 1.000000e+00 :
func.func @negative_far_keys(%q: tensor<2x5x4xf32>, %k: tensor<2x5x4xf32>, %v: tensor<2x5x4xf32>) -> tensor<2x5x4xf32> {
  %hidden = arith.constant dense<0xFF800000> : tensor<2x5x5xf32>
  %i = nn.iota dim = 0 : tensor<5xi64>
  %j = nn.iota dim = 0 : tensor<5xi64>
  %row = nn.broadcast %i dims = [1] : tensor<5xi64> -> tensor<2x5x5xi64>
  %column = nn.broadcast %j dims = [2] : tensor<5xi64> -> tensor<2x5x5xi64>
  %two = arith.constant dense<2> : tensor<2x5x5xi64>
  %d = arith.subi %column, %row : tensor<2x5x5xi64>
  %far = math.absi %d : tensor<2x5x5xi64>
  %mask = arith.cmpi sge, %far, %two : tensor<2x5x5xi64>
  %s = nn.einsum "bsd,btd->bst" %q, %k : tensor<2x5x4xf32>, tensor<2x5x4xf32> -> tensor<2x5x5xf32>
  %m = arith.select %mask, %s, %hidden : tensor<2x5x5xi1>, tensor<2x5x5xf32>
  %p = nn.softmax %m : tensor<2x5x5xf32>
  %o = nn.einsum "bst,bte->bse" %p, %v : tensor<2x5x5xf32>, tensor<2x5x4xf32> -> tensor<2x5x4xf32>
  return %o : tensor<2x5x4xf32>
}

// Documents packed into one sequence.
// CHECK-LABEL: func @documents
// CHECK-NOT:     arith.cmpi
// CHECK:         nn.attention {{.*}} segments(%arg3, %arg3) scale = 1.000000e+00 causal :
func.func @documents(%q: tensor<2x5x4xf32>, %k: tensor<2x5x4xf32>, %v: tensor<2x5x4xf32>, %ids: tensor<2x5xi64>) -> tensor<2x5x4xf32> {
  %hidden = arith.constant dense<0xFF800000> : tensor<2x5x5xf32>
  %i = nn.iota dim = 0 : tensor<5xi64>
  %j = nn.iota dim = 0 : tensor<5xi64>
  %row = nn.broadcast %i dims = [1] : tensor<5xi64> -> tensor<2x5x5xi64>
  %column = nn.broadcast %j dims = [2] : tensor<5xi64> -> tensor<2x5x5xi64>
  %a = nn.broadcast %ids dims = [0, 1] : tensor<2x5xi64> -> tensor<2x5x5xi64>
  %b = nn.broadcast %ids dims = [0, 2] : tensor<2x5xi64> -> tensor<2x5x5xi64>
  %same = arith.cmpi eq, %b, %a : tensor<2x5x5xi64>
  %past = arith.cmpi sle, %column, %row : tensor<2x5x5xi64>
  %mask = arith.andi %past, %same : tensor<2x5x5xi1>
  %s = nn.einsum "bsd,btd->bst" %q, %k : tensor<2x5x4xf32>, tensor<2x5x4xf32> -> tensor<2x5x5xf32>
  %m = arith.select %mask, %s, %hidden : tensor<2x5x5xi1>, tensor<2x5x5xf32>
  %p = nn.softmax %m : tensor<2x5x5xf32>
  %o = nn.einsum "bst,bte->bse" %p, %v : tensor<2x5x5xf32>, tensor<2x5x4xf32> -> tensor<2x5x4xf32>
  return %o : tensor<2x5x4xf32>
}

// 0 where ids agree, -inf where they differ; the ids of queries and keys are in
// different arrays and dimension orders.
// CHECK-LABEL: func @not_other_documents
// CHECK:         %[[Q:.+]] = nn.transpose %arg3
// CHECK:         nn.attention {{.*}} segments(%[[Q]], %arg4) scale = 1.000000e+00 :
func.func @not_other_documents(%q: tensor<2x5x4xf32>, %k: tensor<2x7x4xf32>, %v: tensor<2x7x4xf32>, %r: tensor<5x2xi32>, %ids: tensor<7xi32>) -> tensor<2x5x4xf32> {
  %hidden = arith.constant dense<0xFF800000> : tensor<2x5x7xf32>
  %zero = arith.constant dense<0.0> : tensor<2x5x7xf32>
  %a = nn.transpose %r [1, 0] : tensor<5x2xi32> -> tensor<2x5xi32>
  %b = nn.broadcast %a dims = [0, 1] : tensor<2x5xi32> -> tensor<2x5x7xi32>
  %c = nn.broadcast %ids dims = [2] : tensor<7xi32> -> tensor<2x5x7xi32>
  %other = arith.cmpi ne, %b, %c : tensor<2x5x7xi32>
  %term = arith.select %other, %hidden, %zero : tensor<2x5x7xi1>, tensor<2x5x7xf32>
  %s = nn.einsum "bsd,btd->bst" %q, %k : tensor<2x5x4xf32>, tensor<2x7x4xf32> -> tensor<2x5x7xf32>
  %m = arith.addf %s, %term : tensor<2x5x7xf32>
  %p = nn.softmax %m : tensor<2x5x7xf32>
  %o = nn.einsum "bst,bte->bse" %p, %v : tensor<2x5x7xf32>, tensor<2x7x4xf32> -> tensor<2x5x4xf32>
  return %o : tensor<2x5x4xf32>
}

// Of two comparisons, one becomes segments and the other stays a bias.
// CHECK-LABEL: func @negative_two_documents
// CHECK:         arith.cmpi eq
// CHECK:         nn.attention {{.*}} segments(%arg3, %arg3) bias(%{{.+}}) scale = 1.000000e+00 :
func.func @negative_two_documents(%q: tensor<2x5x4xf32>, %k: tensor<2x5x4xf32>, %v: tensor<2x5x4xf32>, %ids: tensor<2x5xi64>, %row: tensor<5xi64>) -> tensor<2x5x4xf32> {
  %hidden = arith.constant dense<0xFF800000> : tensor<2x5x5xf32>
  %a = nn.broadcast %ids dims = [0, 1] : tensor<2x5xi64> -> tensor<2x5x5xi64>
  %b = nn.broadcast %ids dims = [0, 2] : tensor<2x5xi64> -> tensor<2x5x5xi64>
  %same = arith.cmpi eq, %a, %b : tensor<2x5x5xi64>
  %c = nn.broadcast %row dims = [1] : tensor<5xi64> -> tensor<2x5x5xi64>
  %d = nn.broadcast %row dims = [2] : tensor<5xi64> -> tensor<2x5x5xi64>
  %too = arith.cmpi eq, %c, %d : tensor<2x5x5xi64>
  %mask = arith.andi %same, %too : tensor<2x5x5xi1>
  %s = nn.einsum "bsd,btd->bst" %q, %k : tensor<2x5x4xf32>, tensor<2x5x4xf32> -> tensor<2x5x5xf32>
  %m = arith.select %mask, %s, %hidden : tensor<2x5x5xi1>, tensor<2x5x5xf32>
  %p = nn.softmax %m : tensor<2x5x5xf32>
  %o = nn.einsum "bst,bte->bse" %p, %v : tensor<2x5x5xf32>, tensor<2x5x4xf32> -> tensor<2x5x4xf32>
  return %o : tensor<2x5x4xf32>
}

// 3 tanh(s / 6) with the mask applied after it: a softcap on scores of half the scale.
// CHECK-LABEL: func @capped
// CHECK-NOT:     math.tanh
// CHECK:         nn.attention {{.*}} key_mask(%arg3) scale = 5.000000e-01 softcap = 3.000000e+00 :
func.func @capped(%q: tensor<2x5x4xf32>, %k: tensor<2x5x4xf32>, %v: tensor<2x5x4xf32>, %keys: tensor<2x5xi1>) -> tensor<2x5x4xf32> {
  %hidden = arith.constant dense<0xFF800000> : tensor<2x5x5xf32>
  %three = arith.constant dense<3.0> : tensor<2x5x5xf32>
  %six = arith.constant dense<6.0> : tensor<2x5x5xf32>
  %mask = nn.broadcast %keys dims = [0, 2] : tensor<2x5xi1> -> tensor<2x5x5xi1>
  %s = nn.einsum "bsd,btd->bst" %q, %k : tensor<2x5x4xf32>, tensor<2x5x4xf32> -> tensor<2x5x5xf32>
  %0 = arith.divf %s, %six : tensor<2x5x5xf32>
  %1 = math.tanh %0 : tensor<2x5x5xf32>
  %2 = arith.mulf %1, %three : tensor<2x5x5xf32>
  %m = arith.select %mask, %2, %hidden : tensor<2x5x5xi1>, tensor<2x5x5xf32>
  %p = nn.softmax %m : tensor<2x5x5xf32>
  %o = nn.einsum "bst,bte->bse" %p, %v : tensor<2x5x5xf32>, tensor<2x5x4xf32> -> tensor<2x5x4xf32>
  return %o : tensor<2x5x4xf32>
}

// A mask inside the tanh hides nothing: -inf becomes -3.
// CHECK-LABEL: func @negative_masked_within_cap
// CHECK-NOT:     nn.attention
// CHECK:         math.tanh
func.func @negative_masked_within_cap(%q: tensor<2x5x4xf32>, %k: tensor<2x5x4xf32>, %v: tensor<2x5x4xf32>, %keys: tensor<2x5xi1>) -> tensor<2x5x4xf32> {
  %hidden = arith.constant dense<0xFF800000> : tensor<2x5x5xf32>
  %three = arith.constant dense<3.0> : tensor<2x5x5xf32>
  %mask = nn.broadcast %keys dims = [0, 2] : tensor<2x5xi1> -> tensor<2x5x5xi1>
  %s = nn.einsum "bsd,btd->bst" %q, %k : tensor<2x5x4xf32>, tensor<2x5x4xf32> -> tensor<2x5x5xf32>
  %0 = arith.select %mask, %s, %hidden : tensor<2x5x5xi1>, tensor<2x5x5xf32>
  %1 = math.tanh %0 : tensor<2x5x5xf32>
  %m = arith.mulf %1, %three : tensor<2x5x5xf32>
  %p = nn.softmax %m : tensor<2x5x5xf32>
  %o = nn.einsum "bst,bte->bse" %p, %v : tensor<2x5x5xf32>, tensor<2x5x4xf32> -> tensor<2x5x4xf32>
  return %o : tensor<2x5x4xf32>
}
