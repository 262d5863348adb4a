# The program is right.
split='--set mesh.data=2 --set mesh.tensor=2'
build/bin/cleave check test/Inputs/mlp.mlir $split

# Now it is wrong: a bias is added on every rank, before the sum over ranks instead of after it.
wrong='--inject bias-twice --inject-index 0'
build/bin/cleave check test/Inputs/mlp.mlir $split $wrong || [ $? = 1 ]

# Which operation is the first whose value differs?
build/bin/cleave check test/Inputs/mlp.mlir $split $wrong --bisect | grep 'first difference'

# What stands there in the program of a rank?
build/bin/cleave compile test/Inputs/mlp.mlir $split --emit shard -o build/mlp.mlir
grep -n 'mlp.mlir":15' build/mlp.mlir
grep -n 'all_reduce' build/mlp.mlir

# Whose fault is it, the partitioner's or that of the native code?
build/bin/cleave check test/Inputs/mlp.mlir $split $wrong --interpret || [ $? = 1 ]

# What does the proof say of the program?
build/bin/cleave-opt -dist-verify-variance build/mlp.mlir -o build/proved.mlir
