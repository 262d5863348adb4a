# The derivative, against finite differences; random programs, sharded against unsharded.
ninja -C build cleave cleave-opt cleave-unit-autodiff cleave-unit-partition
build/bin/cleave-unit-autodiff --gtest_filter='*log_sum_exp*:*EveryModelHasACase*'
build/bin/cleave-unit-partition --gtest_filter='Interfaces*:Evaluate*:*RandomProgram*'

# Sharded over the classes, which the operation reduces: 10 on 3 ranks, so that padding is tested.
split='--set train.loss=mse --set mesh.tensor=3 --set shard=[{match="w",dims=[[],["tensor"]]}]'
build/bin/cleave check test/walkthroughs/operation.mlir $split
build/bin/cleave check test/walkthroughs/operation.mlir $split --against interpreter

# The classes are never gathered: ranks all-reduce a maximum and a sum, of one number per sample.
build/bin/cleave compile test/walkthroughs/operation.mlir $split --emit shard -o build/operation.mlir
grep -q 'dist.all_reduce max' build/operation.mlir
grep -q 'dist.all_reduce sum' build/operation.mlir
grep -c 'dist.all_gather' build/operation.mlir | grep -qx 0

# The reference pages.
tools/gen-docs
