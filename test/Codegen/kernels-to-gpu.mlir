// RUN: cleave-opt -kernels-to-gpu -canonicalize -cse -split-input-file %s | FileCheck %s
// RUN: cleave-opt "-kernels-to-gpu=expand" -split-input-file %s | FileCheck %s --check-prefix=EXPAND
// RUN: cleave-opt "-kernels-to-gpu=arch=sm_90" -split-input-file %s | FileCheck %s --check-prefix=PTX

// Each thread handles a 16-byte vector; the remainder is scalar. Calls stay.
// CHECK-LABEL: func.func @host
// CHECK:         call @flat
// CHECK:       gpu.func @flat(%[[X:.+]]: !llvm.ptr<1> {llvm.align = 16 : i64}, %[[R:.+]]: !llvm.ptr<1> {llvm.align = 16 : i64}, %{{.+}}: !llvm.ptr<1> {llvm.align = 8 : i64})
// CHECK-SAME:    kernel attributes {known_block_size = array<i32: 256, 1, 1>, known_grid_size = array<i32: 2, 1, 1>}
// CHECK:         gpu.thread_id  x
// CHECK:         %[[V:.+]] = llvm.load %{{.+}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
// CHECK:         %[[E:.+]] = math.exp %[[V]] : vector<4xf32>
// CHECK:         scf.if
// CHECK-NEXT:      llvm.store %[[E]], %{{.+}} {alignment = 16 : i64}
// CHECK:         scf.if
// CHECK:           llvm.load {{.+}} -> vector<1xf32>
// CHECK:         gpu.return
// EXPAND-LABEL: gpu.func @flat
// EXPAND-NOT:     math.exp
// PTX:         nn.ptx = "{{.+}}.target sm_90{{.+}}.visible .entry flat({{.+}}ld.global.v4.b32{{.+}}st.global.v4.b32
func.func @host(%x: tensor<1030xf32>) -> tensor<1030xf32> {
  %0 = call @flat(%x) : (tensor<1030xf32>) -> tensor<1030xf32>
  return %0 : tensor<1030xf32>
}
func.func private @flat(%x: tensor<1030xf32>) -> tensor<1030xf32> attributes {nn.kernel} {
  %0 = math.exp %x : tensor<1030xf32>
  return %0 : tensor<1030xf32>
}

// -----

// One warp per row: no barrier, no workgroup memory, and the row is read once.
// CHECK-LABEL: gpu.func @rows
// CHECK-SAME:    known_block_size = array<i32: 256, 1, 1>, known_grid_size = array<i32: 1000, 1, 1>
// CHECK-COUNT-2: llvm.load {{.+}} -> vector<4xf32>
// CHECK-NOT:     llvm.load
// CHECK-COUNT-5: gpu.shuffle  xor
// CHECK-NOT:     gpu.barrier
// CHECK-COUNT-2: llvm.store
func.func private @rows(%x: tensor<8000x256xf32>) -> tensor<8000x256xf32> attributes {nn.kernel} {
  %0 = nn.softmax %x : tensor<8000x256xf32>
  return %0 : tensor<8000x256xf32>
}

// -----

// One block per row: warps combine their results in workgroup memory.
// CHECK-LABEL: gpu.func @longer_rows
// CHECK-SAME:    workgroup(%[[W:.+]] : memref<32xf32, #gpu.address_space<workgroup>>
// CHECK-SAME:    known_block_size = array<i32: 1024, 1, 1>, known_grid_size = array<i32: 8, 1, 1>
// CHECK:         gpu.shuffle  xor
// CHECK:         scf.if
// CHECK:           memref.store %{{.+}}, %[[W]]
// CHECK:         gpu.barrier
// CHECK:         memref.load %[[W]]
// CHECK:         gpu.shuffle  xor
func.func private @longer_rows(%x: tensor<8x4096xf32>) -> tensor<8xf32> attributes {nn.kernel} {
  %0 = nn.reduce sum %x dims = [1] : tensor<8x4096xf32> -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// Column sums: 8 threads span the columns, 128 share the summed dimension.
// CHECK-LABEL: gpu.func @column_sums
// CHECK-SAME:    known_block_size = array<i32: 1024, 1, 1>, known_grid_size = array<i32: 96, 1, 1>
// CHECK:         gpu.barrier
// CHECK:         scf.if
func.func private @column_sums(%x: tensor<4096x768xf32>) -> tensor<768xf32> attributes {nn.kernel} {
  %0 = nn.reduce sum %x dims = [0] : tensor<4096x768xf32> -> tensor<768xf32>
  return %0 : tensor<768xf32>
}

// -----

// Each warp owns rows of the table and applies their updates in order.
// CHECK-LABEL: gpu.func @scatter
// CHECK:         %[[VOTES:.+]] = nvvm.vote.sync  ballot
// CHECK:         scf.while (%{{.+}} = %[[VOTES]])
// CHECK:           math.cttz
// CHECK:           gpu.shuffle  idx
// CHECK-NOT:     atomic
func.func private @scatter(%i: tensor<64xi64>, %u: tensor<64x128xf32>) -> tensor<500x128xf32> attributes {nn.kernel} {
  %0 = nn.scatter_add %i, %u dim = 0 : tensor<64xi64>, tensor<64x128xf32> -> tensor<500x128xf32>
  return %0 : tensor<500x128xf32>
}

// -----

// A vector is loaded in as many pieces as its alignment requires.
// CHECK-LABEL: gpu.func @unaligned
// CHECK:         llvm.load {{.+}} {alignment = 4 : i64} : !llvm.ptr<1> -> vector<4xf32>
// CHECK:         llvm.store {{.+}} {alignment = 8 : i64} : vector<4xf32>
func.func private @unaligned(%x: tensor<1024xf32>) -> tensor<1024xf32> attributes {nn.kernel, nn.align = array<i64: 4, 8>} {
  %0 = arith.negf %x : tensor<1024xf32>
  return %0 : tensor<1024xf32>
}

// -----

// The operand is read along its rows: a warp is 8 rows of 4 threads, so that 8 neighbours are read.
// CHECK-LABEL: gpu.func @transpose
// CHECK-DAG:     %[[FOUR:.+]] = arith.constant 4 : i32
// CHECK:         %[[THREAD:.+]] = gpu.thread_id  x
// CHECK-NEXT:    %[[T:.+]] = arith.index_castui %[[THREAD]]
// CHECK-NEXT:    arith.remui %[[T]], %[[FOUR]]
func.func private @transpose(%x: tensor<4096x1024xf32>) -> tensor<1024x4096xf32> attributes {nn.kernel} {
  %0 = nn.transpose %x [1, 0] : tensor<4096x1024xf32> -> tensor<1024x4096xf32>
  return %0 : tensor<1024x4096xf32>
}

// -----

// A table is read 16 bytes at a time, so PTX aligns it to 16 bytes.
// PTX:         nn.ptx = "{{.+}}.global .align 16 .b8 table_$_table0[128]{{.+}}.visible .entry table({{.+}}ld.global.nc.v4.b32
func.func private @table(%x: tensor<64x32xf32>) -> tensor<64x32xf32> attributes {nn.kernel} {
  %t = arith.constant dense<[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0, 18.0, 19.0, 20.0, 21.0, 22.0, 23.0, 24.0, 25.0, 26.0, 27.0, 28.0, 29.0, 30.0, 31.0]> : tensor<32xf32>
  %0 = nn.broadcast %t dims = [1] : tensor<32xf32> -> tensor<64x32xf32>
  %1 = arith.mulf %x, %0 : tensor<64x32xf32>
  return %1 : tensor<64x32xf32>
}

// -----

// Other functions of the module are not converted.
// CHECK-LABEL: func.func @negative_no_kernel
// CHECK-NEXT:    arith.negf
func.func @negative_no_kernel(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = arith.negf %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @other(%x: tensor<4xf32>) -> tensor<4xf32> attributes {nn.kernel} {
  %0 = arith.negf %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
