// Commands that run other commands.

#ifndef CLEAVE_DIALECT_RT_IR_RTCONTROLOPS_TD
#define CLEAVE_DIALECT_RT_IR_RTCONTROLOPS_TD

include "cleave/Dialect/RT/IR/RTCommand.td"

def RT_RepeatOp : RT_Command<"repeat", ["getReuse", "getScratchResult", "getFlops", "needsFixedOperands"],
                             [AttrSizedOperandSegments, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Runs the commands of a function several times";
  let description = [{
    The command runs the function `body` `trips` times, once for each iteration
    of a loop. The function is not an action of the program: only this command
    runs it, and its values have addresses in the memory of this command. Its
    arguments are, for each of `pairs`, the carried value, for each of `slices`
    the element of the operand along dimension 0, and each of `captures` as it
    is. It returns the new carried values, then an element of each stacked
    result. Iteration i reads and writes index i along dimension 0, or with
    `reverse` index `trips - 1 - i`.

    A pair consists of two buffers, which hold a carried value in turn:
    iteration i reads element `(i + 1) mod 2` of the pair and writes element
    `i mod 2`. So the initial value is element 1, and the final value is element
    `(trips - 1) mod 2`. A pair is updated in place. Stacked results are written
    in place by each iteration. With `has_scratch`, the last result is memory
    for the values inside of an iteration.

    ```mlir
    func.func private @add(tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
    func.func private @body(%h: tensor<3xf32>, %x: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) attributes {rt.body} {
      %0 = rt.launch @add(%h, %x) extent = 3 grain = 1 : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      return %0, %0 : tensor<3xf32>, tensor<3xf32>
    }
    func.func @f(%pair: tensor<2x3xf32>, %xs: tensor<5x3xf32>) -> (tensor<2x3xf32>, tensor<5x3xf32>) {
      %0:2 = rt.repeat @body trips = 5 pairs(%pair) slices(%xs) : (tensor<2x3xf32>, tensor<5x3xf32>) -> (tensor<2x3xf32>, tensor<5x3xf32>)
      return %0#0, %0#1 : tensor<2x3xf32>, tensor<5x3xf32>
    }
    ```

    Constraints (the verifier's code cites them by these labels):
    - (RP1) `trips` is positive.
    - (RP2) A pair has a dimension 0 of 2, a slice and a stacked result one of `trips`.
    - (RP3) `body` is a function with `rt.body`; without dimension 0 of pairs and slices,
      operands have the types of its arguments, and results those of its results.
    - (RP4) Scratch memory is a tensor of i8.
    - (RP5) `body` does not run itself, neither directly nor by another `rt.repeat`.
  }];
  let arguments = (ins FlatSymbolRefAttr:$body, Variadic<AnyRankedTensor>:$pairs, Variadic<AnyRankedTensor>:$slices,
                       Variadic<AnyRankedTensor>:$captures, ConfinedAttr<I64Attr, [IntPositive]>:$trips,
                       UnitAttr:$reverse, UnitAttr:$has_scratch);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $body `trips` `=` $trips (`reverse` $reverse^)? (`pairs` `(` $pairs^ `)`)? (`slices` `(` $slices^ `)`)?
    (`captures` `(` $captures^ `)`)? (`has_scratch` $has_scratch^)? attr-dict `:` functional-type(operands, results)
  }];
  let extraClassDeclaration = [{
    /// The stacked results.
    ::mlir::ResultRange getStacked() {
      return getResults().drop_front(getPairs().size()).drop_back(getHasScratch() ? 1 : 0);
    }
    /// Returns the function that the command runs.
    ::mlir::FunctionOpInterface lookupBody();
  }];
  let hasVerifier = 1;
}

#endif
