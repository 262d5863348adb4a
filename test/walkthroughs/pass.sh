ninja -C build cleave-opt
build/bin/cleave-opt test/Dialect/NN/Transforms/nn-raise-log-sum-exp.mlir -nn-raise-log-sum-exp
$(sed -n 's/^CLEAVE_LIT:[A-Z]*=//p' build/CMakeCache.txt) -v build/test --filter nn-raise-log-sum-exp
tools/gen-docs
