// RUN: cleave-opt %s -nn-raise-composites | FileCheck %s

// CHECK-LABEL: func @rms_norm
// CHECK:         %[[Y:.+]], %{{.+}} = nn.rms_norm %{{.+}}, %{{.+}} epsilon = {{1.0+E-6|1.000000e-06|9.99.*E-7}}
// CHECK:         return %[[Y]]
func.func @rms_norm(%x: tensor<2x5x6xf32>, %w: tensor<6xf32>) -> tensor<2x5x6xf32> {
  %n = arith.constant dense<6.0> : tensor<2x5xf32>
  %one = arith.constant dense<1.0> : tensor<2x5xf32>
  %eps = arith.constant dense<1.0e-6> : tensor<2x5xf32>
  %0 = arith.mulf %x, %x : tensor<2x5x6xf32>
  %1 = nn.reduce sum %0 dims = [2] : tensor<2x5x6xf32> -> tensor<2x5xf32>
  %2 = arith.divf %1, %n : tensor<2x5xf32>
  %3 = arith.addf %eps, %2 : tensor<2x5xf32>
  %4 = math.sqrt %3 : tensor<2x5xf32>
  %5 = arith.divf %one, %4 : tensor<2x5xf32>
  %6 = nn.broadcast %5 dims = [0, 1] : tensor<2x5xf32> -> tensor<2x5x6xf32>
  %7 = arith.mulf %6, %x : tensor<2x5x6xf32>
  %8 = nn.broadcast %w dims = [2] : tensor<6xf32> -> tensor<2x5x6xf32>
  %9 = arith.mulf %8, %7 : tensor<2x5x6xf32>
  return %9 : tensor<2x5x6xf32>
}

// Divided by a number other than the row's size: not a mean.
// CHECK-LABEL: func @negative_rms_norm
// CHECK-NOT:     nn.rms_norm
func.func @negative_rms_norm(%x: tensor<5x6xf32>) -> tensor<5x6xf32> {
  %n = arith.constant dense<5.0> : tensor<5xf32>
  %eps = arith.constant dense<1.0e-6> : tensor<5xf32>
  %0 = arith.mulf %x, %x : tensor<5x6xf32>
  %1 = nn.reduce sum %0 dims = [1] : tensor<5x6xf32> -> tensor<5xf32>
  %2 = arith.divf %1, %n : tensor<5xf32>
  %3 = arith.addf %2, %eps : tensor<5xf32>
  %4 = math.rsqrt %3 : tensor<5xf32>
  %5 = nn.broadcast %4 dims = [0] : tensor<5xf32> -> tensor<5x6xf32>
  %6 = arith.mulf %x, %5 : tensor<5x6xf32>
  return %6 : tensor<5x6xf32>
}

// CHECK-LABEL: func @layer_norm
// CHECK:         nn.layer_norm %{{.+}}, %{{.+}}, %{{.+}} epsilon
// CHECK-NOT:     arith.divf
func.func @layer_norm(%x: tensor<5x6xf32>, %w: tensor<6xf32>, %b: tensor<6xf32>) -> tensor<5x6xf32> {
  %n = arith.constant dense<6.0> : tensor<5xf32>
  %eps = arith.constant dense<1.0e-5> : tensor<5xf32>
  %0 = nn.reduce sum %x dims = [1] : tensor<5x6xf32> -> tensor<5xf32>
  %1 = arith.divf %0, %n : tensor<5xf32>
  %2 = nn.broadcast %1 dims = [0] : tensor<5xf32> -> tensor<5x6xf32>
  %3 = arith.subf %x, %2 : tensor<5x6xf32>
  %4 = arith.mulf %3, %3 : tensor<5x6xf32>
  %5 = nn.reduce sum %4 dims = [1] : tensor<5x6xf32> -> tensor<5xf32>
  %6 = arith.divf %5, %n : tensor<5xf32>
  %7 = arith.addf %6, %eps : tensor<5xf32>
  %8 = math.sqrt %7 : tensor<5xf32>
  %9 = nn.broadcast %8 dims = [0] : tensor<5xf32> -> tensor<5x6xf32>
  %10 = arith.divf %3, %9 : tensor<5x6xf32>
  %11 = nn.broadcast %w dims = [1] : tensor<6xf32> -> tensor<5x6xf32>
  %12 = arith.mulf %10, %11 : tensor<5x6xf32>
  %13 = nn.broadcast %b dims = [1] : tensor<6xf32> -> tensor<5x6xf32>
  %14 = arith.addf %13, %12 : tensor<5x6xf32>
  return %14 : tensor<5x6xf32>
}

// CHECK-LABEL: func @gelu_erf
// CHECK:         nn.gelu erf %{{.+}} : tensor<5x6xf32>
func.func @gelu_erf(%x: tensor<5x6xf32>) -> tensor<5x6xf32> {
  %half = arith.constant dense<0.5> : tensor<5x6xf32>
  %one = arith.constant dense<1.0> : tensor<5x6xf32>
  %root = arith.constant dense<1.41421354> : tensor<5x6xf32>
  %0 = arith.divf %x, %root : tensor<5x6xf32>
  %1 = math.erf %0 : tensor<5x6xf32>
  %2 = arith.addf %1, %one : tensor<5x6xf32>
  %3 = arith.mulf %x, %2 : tensor<5x6xf32>
  %4 = arith.mulf %3, %half : tensor<5x6xf32>
  return %4 : tensor<5x6xf32>
}

// CHECK-LABEL: func @gelu_tanh
// CHECK:         nn.gelu tanh %{{.+}} : tensor<5x6xf32>
func.func @gelu_tanh(%x: tensor<5x6xf32>) -> tensor<5x6xf32> {
  %half = arith.constant dense<0.5> : tensor<5x6xf32>
  %one = arith.constant dense<1.0> : tensor<5x6xf32>
  %c = arith.constant dense<0.044715> : tensor<5x6xf32>
  %root = arith.constant dense<0.797884583> : tensor<5x6xf32>
  %0 = arith.mulf %x, %half : tensor<5x6xf32>
  %1 = arith.mulf %x, %x : tensor<5x6xf32>
  %2 = arith.mulf %1, %x : tensor<5x6xf32>
  %3 = arith.mulf %2, %c : tensor<5x6xf32>
  %4 = arith.addf %3, %x : tensor<5x6xf32>
  %5 = arith.mulf %root, %4 : tensor<5x6xf32>
  %6 = math.tanh %5 : tensor<5x6xf32>
  %7 = arith.addf %one, %6 : tensor<5x6xf32>
  %8 = arith.mulf %7, %0 : tensor<5x6xf32>
  return %8 : tensor<5x6xf32>
}

// CHECK-LABEL: func @rotary
// CHECK-SAME:    %[[X:.+]]: tensor<2x5x3x4xf32>, %[[A:.+]]: tensor<5x2xf32>
// CHECK:         %[[C:.+]] = math.cos %[[A]]
// CHECK:         %[[S:.+]] = math.sin %[[A]]
// CHECK:         %[[Y:.+]] = nn.rotary %[[X]], %[[C]], %[[S]] : tensor<2x5x3x4xf32>, tensor<5x2xf32>
// CHECK:         return %[[Y]]
func.func @rotary(%x: tensor<2x5x3x4xf32>, %angle: tensor<5x2xf32>) -> tensor<2x5x3x4xf32> {
  %0 = nn.concat %angle, %angle dim = 1 : tensor<5x2xf32>, tensor<5x2xf32> -> tensor<5x4xf32>
  %1 = math.cos %0 : tensor<5x4xf32>
  %2 = math.sin %0 : tensor<5x4xf32>
  %cos = nn.broadcast %1 dims = [1, 3] : tensor<5x4xf32> -> tensor<2x5x3x4xf32>
  %sin = nn.broadcast %2 dims = [1, 3] : tensor<5x4xf32> -> tensor<2x5x3x4xf32>
  %low = nn.slice %x [0, 0, 0, 0] [2, 5, 3, 2] [1, 1, 1, 1] : tensor<2x5x3x4xf32> -> tensor<2x5x3x2xf32>
  %high = nn.slice %x [0, 0, 0, 2] [2, 5, 3, 2] [1, 1, 1, 1] : tensor<2x5x3x4xf32> -> tensor<2x5x3x2xf32>
  %neg = arith.negf %high : tensor<2x5x3x2xf32>
  %turned = nn.concat %neg, %low dim = 3 : tensor<2x5x3x2xf32>, tensor<2x5x3x2xf32> -> tensor<2x5x3x4xf32>
  %3 = arith.mulf %x, %cos : tensor<2x5x3x4xf32>
  %4 = arith.mulf %turned, %sin : tensor<2x5x3x4xf32>
  %5 = arith.addf %3, %4 : tensor<2x5x3x4xf32>
  return %5 : tensor<2x5x3x4xf32>
}

// Scales on query and key, a causal mask and a key mask, and the guard against
// rows of NaN.
// CHECK-LABEL: func @attention
// CHECK-SAME:    %[[Q:.+]]: tensor<2x5x3x4xf32>, %[[K:.+]]: tensor<2x5x3x4xf32>, %[[V:.+]]: tensor<2x5x3x7xf32>, %[[M:.+]]: tensor<2x5xi1>
// CHECK:         %[[QG:.+]] = nn.reshape %[[Q]] : tensor<2x5x3x4xf32> -> tensor<2x5x3x1x4xf32>
// CHECK:         %[[O:.+]], %{{.+}} = nn.attention %[[QG]], %[[K]], %[[V]] key_mask(%[[M]]) scale = 2.500000e-01 causal
// CHECK:         %[[R:.+]] = nn.reshape %[[O]]
// CHECK:         return %[[R]]
func.func @attention(%q: tensor<2x5x3x4xf32>, %k: tensor<2x5x3x4xf32>, %v: tensor<2x5x3x7xf32>,
                     %m: tensor<2x5xi1>) -> tensor<2x5x3x7xf32> {
  %half = arith.constant dense<0.5> : tensor<2x5x3x4xf32>
  %zero = arith.constant dense<0.0> : tensor<2x3x5x5xf32>
  %hidden = arith.constant dense<-3.4e+38> : tensor<2x3x5x5xf32>
  %i = nn.iota dim = 0 : tensor<5xi64>
  %row = nn.broadcast %i dims = [2] : tensor<5xi64> -> tensor<2x3x5x5xi64>
  %column = nn.broadcast %i dims = [3] : tensor<5xi64> -> tensor<2x3x5x5xi64>
  %causal = arith.cmpi sge, %row, %column : tensor<2x3x5x5xi64>
  %keys = nn.broadcast %m dims = [0, 3] : tensor<2x5xi1> -> tensor<2x3x5x5xi1>
  %mask = arith.andi %causal, %keys : tensor<2x3x5x5xi1>
  %bias = arith.select %mask, %zero, %hidden : tensor<2x3x5x5xi1>, tensor<2x3x5x5xf32>
  %qs = arith.mulf %q, %half : tensor<2x5x3x4xf32>
  %ks = arith.mulf %half, %k : tensor<2x5x3x4xf32>
  %s = nn.einsum "bsnd,btnd->bnst" %qs, %ks : tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32> -> tensor<2x3x5x5xf32>
  %b = arith.addf %bias, %s : tensor<2x3x5x5xf32>
  %p = nn.softmax %b : tensor<2x3x5x5xf32>
  %nan = arith.cmpf uno, %p, %p : tensor<2x3x5x5xf32>
  %w = arith.select %nan, %zero, %p : tensor<2x3x5x5xi1>, tensor<2x3x5x5xf32>
  %o = nn.einsum "bnst,btne->bsne" %w, %v : tensor<2x3x5x5xf32>, tensor<2x5x3x7xf32> -> tensor<2x5x3x7xf32>
  return %o : tensor<2x5x3x7xf32>
}

// Grouped query heads, and a window of the last three keys.
// CHECK-LABEL: func @grouped_window
// CHECK-NOT:     arith.cmpi
// CHECK:         nn.attention %{{.+}}, %{{.+}}, %{{.+}} scale = 1.000000e+00 causal window = 3 : (tensor<2x5x3x2x4xf32>, tensor<2x5x3x4xf32>, tensor<2x5x3x4xf32>)
func.func @grouped_window(%q: tensor<2x3x2x5x4xf32>, %k: tensor<2x5x3x4xf32>, %v: tensor<2x5x3x4xf32>) -> tensor<2x3x2x5x4xf32> {
  %hidden = arith.constant dense<0xFF800000> : tensor<2x3x2x5x5xf32>
  %two = arith.constant dense<2> : tensor<5xi64>
  %i = nn.iota dim = 0 : tensor<5xi64>
  %back = arith.subi %i, %two : tensor<5xi64>
  %row = nn.broadcast %i dims = [0] : tensor<5xi64> -> tensor<5x5xi64>
  %first = nn.broadcast %back dims = [0] : tensor<5xi64> -> tensor<5x5xi64>
  %column = nn.broadcast %i dims = [1] : tensor<5xi64> -> tensor<5x5xi64>
  %causal = arith.cmpi sle, %column, %row : tensor<5x5xi64>
  %window = arith.cmpi sge, %column, %first : tensor<5x5xi64>
  %both = arith.andi %causal, %window : tensor<5x5xi1>
  %mask = nn.broadcast %both dims = [3, 4] : tensor<5x5xi1> -> tensor<2x3x2x5x5xi1>
  %s = nn.einsum "bngsd,btnd->bngst" %q, %k : tensor<2x3x2x5x4xf32>, tensor<2x5x3x4xf32> -> tensor<2x3x2x5x5xf32>
  %m = arith.select %mask, %s, %hidden : tensor<2x3x2x5x5xi1>, tensor<2x3x2x5x5xf32>
  %p = nn.softmax %m : tensor<2x3x2x5x5xf32>
  %o = nn.einsum "bngst,btne->bngse" %p, %v : tensor<2x3x2x5x5xf32>, tensor<2x5x3x4xf32> -> tensor<2x3x2x5x4xf32>
  return %o : tensor<2x3x2x5x4xf32>
}

// The second product contracts queries instead of keys.
// CHECK-LABEL: func @negative_other_contraction
// CHECK-NOT:     nn.attention
func.func @negative_other_contraction(%q: tensor<2x5x4xf32>, %k: tensor<2x5x4xf32>, %v: tensor<2x5x4xf32>) -> tensor<2x5x4xf32> {
  %s = nn.einsum "bsd,btd->bst" %q, %k : tensor<2x5x4xf32>, tensor<2x5x4xf32> -> tensor<2x5x5xf32>
  %p = nn.softmax %s : tensor<2x5x5xf32>
  %o = nn.einsum "bst,bsd->btd" %p, %v : tensor<2x5x5xf32>, tensor<2x5x4xf32> -> tensor<2x5x4xf32>
  return %o : tensor<2x5x4xf32>
}

// Only the first features rotate; their slice was merged with the slices of its
// halves.
// CHECK-LABEL: func @partial_rotary
// CHECK:         %[[X:.+]] = nn.slice %{{.+}} [0, 0, 0] [2, 5, 4] [1, 1, 1]
// CHECK:         nn.rotary %[[X]], %{{.+}}, %{{.+}} : tensor<2x5x4xf32>, tensor<5x2xf32>
func.func @partial_rotary(%x: tensor<2x5x6xf32>, %c: tensor<5x2xf32>, %s: tensor<5x2xf32>) -> tensor<2x5x4xf32> {
  %cc = nn.concat %c, %c dim = 1 : tensor<5x2xf32>, tensor<5x2xf32> -> tensor<5x4xf32>
  %ss = nn.concat %s, %s dim = 1 : tensor<5x2xf32>, tensor<5x2xf32> -> tensor<5x4xf32>
  %cos = nn.broadcast %cc dims = [1, 2] : tensor<5x4xf32> -> tensor<2x5x4xf32>
  %sin = nn.broadcast %ss dims = [1, 2] : tensor<5x4xf32> -> tensor<2x5x4xf32>
  %part = nn.slice %x [0, 0, 0] [2, 5, 4] [1, 1, 1] : tensor<2x5x6xf32> -> tensor<2x5x4xf32>
  %low = nn.slice %x [0, 0, 0] [2, 5, 2] [1, 1, 1] : tensor<2x5x6xf32> -> tensor<2x5x2xf32>
  %high = nn.slice %x [0, 0, 2] [2, 5, 2] [1, 1, 1] : tensor<2x5x6xf32> -> tensor<2x5x2xf32>
  %neg = arith.negf %high : tensor<2x5x2xf32>
  %turned = nn.concat %neg, %low dim = 2 : tensor<2x5x2xf32>, tensor<2x5x2xf32> -> tensor<2x5x4xf32>
  %0 = arith.mulf %turned, %sin : tensor<2x5x4xf32>
  %1 = arith.mulf %part, %cos : tensor<2x5x4xf32>
  %2 = arith.addf %0, %1 : tensor<2x5x4xf32>
  return %2 : tensor<2x5x4xf32>
}

// A key mask per sample and a bias for all samples are broadcast to their joint shape.
// CHECK-LABEL: func @two_biases
// CHECK:         nn.attention {{.+}} bias(%{{.+}}) {{.+}}, tensor<2x1x1x5x5xf32>)
func.func @two_biases(%q: tensor<2x3x5x4xf32>, %k: tensor<2x3x5x4xf32>, %v: tensor<2x3x5x4xf32>, %m: tensor<2x5x5xf32>, %c: tensor<5x5xf32>) -> tensor<2x3x5x4xf32> {
  %s = nn.einsum "hnsd,hntd->hnst" %q, %k : tensor<2x3x5x4xf32>, tensor<2x3x5x4xf32> -> tensor<2x3x5x5xf32>
  %mb = nn.broadcast %m dims = [0, 2, 3] : tensor<2x5x5xf32> -> tensor<2x3x5x5xf32>
  %cb = nn.broadcast %c dims = [2, 3] : tensor<5x5xf32> -> tensor<2x3x5x5xf32>
  %0 = arith.addf %s, %cb : tensor<2x3x5x5xf32>
  %1 = arith.addf %0, %mb : tensor<2x3x5x5xf32>
  %p = nn.softmax %1 : tensor<2x3x5x5xf32>
  %o = nn.einsum "hnst,hntd->hnsd" %p, %v : tensor<2x3x5x5xf32>, tensor<2x3x5x4xf32> -> tensor<2x3x5x4xf32>
  return %o : tensor<2x3x5x4xf32>
}

// A bias that may be trained stays outside: attention has no derivative for its bias.
// CHECK-LABEL: func @negative_learned_bias
// CHECK-NOT:     nn.attention
// CHECK:         return
func.func @negative_learned_bias(%q: tensor<2x3x5x4xf32>, %k: tensor<2x3x5x4xf32>, %v: tensor<2x3x5x4xf32>, %c: tensor<5x5xf32> {nn.name = "c", nn.role = #nn.role<parameter>}) -> tensor<2x3x5x4xf32> {
  %s = nn.einsum "hnsd,hntd->hnst" %q, %k : tensor<2x3x5x4xf32>, tensor<2x3x5x4xf32> -> tensor<2x3x5x5xf32>
  %cb = nn.broadcast %c dims = [2, 3] : tensor<5x5xf32> -> tensor<2x3x5x5xf32>
  %0 = arith.addf %s, %cb : tensor<2x3x5x5xf32>
  %p = nn.softmax %0 : tensor<2x3x5x5xf32>
  %o = nn.einsum "hnst,hntd->hnsd" %p, %v : tensor<2x3x5x5xf32>, tensor<2x3x5x4xf32> -> tensor<2x3x5x4xf32>
  return %o : tensor<2x3x5x4xf32>
}

// Heads and features span several dimensions each, with one key head: they are
// merged before attention and split again after it.

// CHECK-LABEL: func @several_dimensions_of_heads
// CHECK:         %[[Q:.*]] = nn.reshape %{{.*}} : tensor<2x5x3x2x2x4xf32> -> tensor<2x5x1x6x8xf32>
// CHECK:         %[[K:.*]] = nn.reshape %{{.*}} : tensor<2x5x2x4xf32> -> tensor<2x5x1x8xf32>
// CHECK:         nn.attention %[[Q]], %[[K]], %{{.*}} scale = 5.000000e-01 : (tensor<2x5x1x6x8xf32>, tensor<2x5x1x8xf32>, tensor<2x5x1x8xf32>)
// CHECK:         nn.reshape %{{.*}} : tensor<2x5x1x6x8xf32> -> tensor<2x5x3x2x8xf32>
func.func @several_dimensions_of_heads(%q: tensor<2x5x3x2x2x4xf32>, %k: tensor<2x5x2x4xf32>,
                                       %v: tensor<2x5x8xf32>) -> tensor<2x3x2x5x8xf32> {
  %scale = arith.constant dense<0.5> : tensor<2x3x2x5x5xf32>
  %0 = nn.einsum "bshipd,btpd->bhist" %q, %k : tensor<2x5x3x2x2x4xf32>, tensor<2x5x2x4xf32> -> tensor<2x3x2x5x5xf32>
  %1 = arith.mulf %0, %scale : tensor<2x3x2x5x5xf32>
  %2 = nn.softmax %1 : tensor<2x3x2x5x5xf32>
  %3 = nn.einsum "bhist,bte->bhise" %2, %v : tensor<2x3x2x5x5xf32>, tensor<2x5x8xf32> -> tensor<2x3x2x5x8xf32>
  return %3 : tensor<2x3x2x5x8xf32>
}
