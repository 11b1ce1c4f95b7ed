#pragma once
// One render: the budget, the heap, the variables, and everything that evaluates.
#include <fmt/format.h>

#include <chrono>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "text/jinja/run/objects.h"

namespace llorch::text::jinja {

class Runtime {
 public:
  Runtime(Heap& heap, const RenderInput& input) : heap_(heap), input_(input) {}
  Runtime(const Runtime&) = delete;

  Heap& heap() { return heap_; }
  Budget& budget() { return heap_.budget(); }
  const RenderInput& input() const { return input_; }

  base::Result<RenderedText> render(const Program& program);

  // INVALID_PARAMS with the line that runs. `what` must not hold any of the caller's text.
  base::Error error(std::string_view what) const;
  base::Error undefined_error(const Value& value) const;
  // Fails when a limit is passed; every loop of the interpreter asks.
  base::Result<> check(std::uint64_t steps = 1);
  // For work that goes over bytes of a text.
  base::Result<> check_text(std::size_t bytes) { return check(1 + bytes / 64); }

  // One more level of nesting for as long as it lives.
  class Level {
   public:
    explicit Level(Runtime& run) : run_(run) { ++run_.depth_; }
    ~Level() { --run_.depth_; }
    Level(const Level&) = delete;
    base::Result<> check() const;

   private:
    Runtime& run_;
  };

  base::Result<Value> call(const Value& callee, CallArgs arguments);
  base::Result<Value> apply_filter(std::string_view name, const Value& input, CallArgs& arguments);
  base::Result<bool> apply_test(std::string_view name, const Value& value, CallArgs& arguments);
  // value.name, then value["name"]; value["name"], then value.name. Undefined when there is neither.
  base::Result<Value> attribute(const Value& value, const TextPtr& name);
  base::Result<Value> item(const Value& value, const Value& key);
  // The attribute alone; no value: there is none.
  base::Result<std::optional<Value>> own_attribute(const Value& value, std::string_view name);

  base::Result<Value> call_macro(const Macro& macro, CallArgs& arguments);
  base::Result<Value> call_loop(const Loop& loop, const Value& iterable);
  base::Result<bool> test_passes(const Stmt& loop_statement, const Value& item, Activation& activation);
  base::Result<> assign(const Target& target, const Value& value, Activation& activation);
  void enter(const Scope& scope, Activation& activation);

 private:
  enum class Flow { kNormal, kBreak, kContinue };

  base::Result<Value> eval(const Expr& expr, Activation& activation);
  base::Result<Value> eval_node(const Expr& expr, Activation& activation);
  base::Result<Value> eval_container(const Expr& expr, Activation& activation);
  base::Result<Value> eval_operator(const Expr& expr, Activation& activation);
  base::Result<Value> eval_concat(const Expr& expr, Activation& activation);
  base::Result<Value> eval_comparison(const Expr& expr, Activation& activation);
  base::Result<Value> eval_slice(const Expr& expr, Activation& activation);
  base::Result<Value> eval_call(const Expr& expr, Activation& activation, const Value* caller = nullptr);
  // A chain of filters whose innermost has no input: `block_text` is what it gets.
  base::Result<Value> eval_filter(const Expr& expr, Activation& activation, const Value* block_text = nullptr);
  base::Result<CallArgs> eval_arguments(const Arguments& arguments, Activation& activation);
  Value& variable(const SlotRef& ref, Activation& activation) const;
  Value resolve(const std::string& name);

  base::Result<Flow> exec(const Block& block, Activation& activation, TextBuilder& out);
  base::Result<Flow> exec(const Stmt& stmt, Activation& activation, TextBuilder& out);
  base::Result<Flow> exec_if(const Stmt& stmt, Activation& activation, TextBuilder& out);
  base::Result<Flow> exec_for(const Stmt& stmt, const Value& iterable, Activation& activation, TextBuilder& out,
                              int depth0, Activation& test_parent);
  base::Result<Flow> exec_set_block(const Stmt& stmt, Activation& activation);
  base::Result<Flow> exec_filter_block(const Stmt& stmt, Activation& activation, TextBuilder& out);
  base::Result<Flow> exec_call_block(const Stmt& stmt, Activation& activation, TextBuilder& out);
  base::Result<> output(const Value& value, TextBuilder& out);
  base::Result<Value> take_string(TextBuilder& builder);
  Value make_macro(const MacroCode& code, Activation& activation);
  void leave(const Scope& scope, Activation& activation);
  Activation* make_activation(Activation* parent, int slots_count);
  base::Result<> bind_parameters(const Macro& macro, CallArgs& arguments, Activation& activation);
  base::Result<std::optional<Value>> object_attribute(const Value& value, std::string_view name);
  base::Result<std::optional<Value>> loop_attribute(Loop& loop, std::string_view name);

  Heap& heap_;
  const RenderInput& input_;
  Value variables_;  // the caller's, as a dict
  int line_ = 0;
  int depth_ = 0;
};

// The arguments in the order of `names`, missing() for those not given. INVALID_PARAMS: unknown, twice, too many, or
// one of the first `required` is not given.
base::Result<std::vector<Value>> bind_arguments(Runtime& run, CallArgs& arguments,
                                                std::initializer_list<std::string_view> names, std::size_t required);

// One element on from what was looked at ahead.
base::Result<std::optional<Value>> loop_next(Runtime& run, Loop& loop);

}  // namespace llorch::text::jinja
