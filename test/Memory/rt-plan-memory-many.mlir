// RUN: env MALLOC_PERTURB_=165 cleave-opt %s --rt-plan-memory | FileCheck %s

// Many values, each reusing the memory of the one before: the tables of the
// analysis grow while they are filled. (Freed memory is filled with a pattern.)

// CHECK:           rt.arenas = array<i64: 128, 0>
// CHECK-COUNT-100: rt.copy {{.*}} {rt.buffers = [#rt.address<0, 64>]}
func.func @chain(%x: tensor<8xf32> {nn.name = "x", nn.role = #nn.role<input>})
    -> (tensor<8xf32> {nn.name = "y", nn.role = #nn.role<output>}) {
  %0 = rt.copy %x [0, 1] to [0, 1] shape = [8] : (tensor<8xf32>) -> tensor<8xf32>
  %1 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%0) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %2 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%1) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %3 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %4 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%3) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %5 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%4) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %6 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%5) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %7 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%6) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %8 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%7) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %9 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%8) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %10 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%9) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %11 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%10) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %12 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%11) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %13 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%12) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %14 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%13) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %15 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%14) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %16 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%15) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %17 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%16) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %18 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%17) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %19 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%18) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %20 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%19) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %21 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%20) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %22 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%21) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %23 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%22) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %24 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%23) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %25 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%24) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %26 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%25) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %27 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%26) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %28 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%27) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %29 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%28) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %30 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%29) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %31 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%30) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %32 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%31) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %33 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%32) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %34 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%33) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %35 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%34) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %36 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%35) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %37 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%36) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %38 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%37) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %39 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%38) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %40 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%39) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %41 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%40) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %42 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%41) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %43 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%42) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %44 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%43) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %45 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%44) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %46 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%45) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %47 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%46) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %48 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%47) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %49 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%48) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %50 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%49) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %51 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%50) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %52 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%51) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %53 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%52) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %54 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%53) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %55 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%54) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %56 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%55) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %57 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%56) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %58 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%57) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %59 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%58) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %60 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%59) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %61 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%60) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %62 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%61) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %63 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%62) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %64 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%63) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %65 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%64) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %66 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%65) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %67 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%66) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %68 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%67) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %69 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%68) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %70 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%69) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %71 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%70) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %72 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%71) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %73 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%72) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %74 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%73) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %75 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%74) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %76 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%75) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %77 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%76) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %78 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%77) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %79 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%78) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %80 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%79) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %81 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%80) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %82 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%81) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %83 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%82) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %84 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%83) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %85 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%84) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %86 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%85) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %87 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%86) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %88 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%87) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %89 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%88) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %90 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%89) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %91 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%90) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %92 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%91) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %93 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%92) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %94 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%93) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %95 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%94) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %96 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%95) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %97 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%96) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %98 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%97) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %99 = rt.copy %x [0, 1] to [0, 1] shape = [8] into(%98) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %99 : tensor<8xf32>
}
