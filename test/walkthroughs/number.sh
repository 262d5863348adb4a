# The correct program passes.
split='--set mesh.data=2 --set mesh.tensor=2'
build/bin/cleave check test/Inputs/mlp.mlir $split

# With an injected fault: a bias is added on every rank, before the all-reduce instead of after it.
wrong='--inject bias-twice --inject-index 0'
build/bin/cleave check test/Inputs/mlp.mlir $split $wrong || [ $? = 1 ]

# Which operation is the first whose value differs?
build/bin/cleave check test/Inputs/mlp.mlir $split $wrong --bisect | grep 'first difference'

# What is at this location in the per-rank program?
build/bin/cleave compile test/Inputs/mlp.mlir $split --emit shard -o build/mlp.mlir
grep -n 'mlp.mlir":15' build/mlp.mlir
grep -n 'all_reduce' build/mlp.mlir

# Is the error in the partitioned program or in the native code?
build/bin/cleave check test/Inputs/mlp.mlir $split $wrong --interpret || [ $? = 1 ]

# Does the verifier accept the program?
build/bin/cleave-opt -dist-verify-variance build/mlp.mlir -o build/proved.mlir
