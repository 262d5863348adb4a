// Evaluates the formulas of test/schedules.csv: numbers, variables of one
// letter, + - * / %, comparisons, &, parentheses, min(a;b) and max(a;b).

#ifndef CLEAVE_TEST_UNIT_PIPELINE_EXPRESSION_H
#define CLEAVE_TEST_UNIT_PIPELINE_EXPRESSION_H

#include <map>
#include <string>

namespace cleave::pipeline::test {

// Evaluates a formula. Fails the test if the text is not a formula.
double evaluate(const std::string &text,
                const std::map<char, double> &variables);

} // namespace cleave::pipeline::test

#endif // CLEAVE_TEST_UNIT_PIPELINE_EXPRESSION_H
