#include "text/jinja/run/runtime.h"

#include <boost/json/value.hpp>

#include "text/jinja/library/library.h"
#include "text/jinja/value/operations.h"
#include "text/jinja/value/print.h"

namespace llorch::text::jinja {
namespace {

base::Result<Value> from_json(Runtime& run, const boost::json::value& json) {
  const Runtime::Level level(run);
  TRY(level.check());
  TRY(run.check());
  switch (json.kind()) {
    case boost::json::kind::null: return Value::none(Origin::kData);
    case boost::json::kind::bool_: return Value::boolean(json.get_bool(), Origin::kData);
    case boost::json::kind::int64: return Value::integer(json.get_int64(), Origin::kData);
    case boost::json::kind::uint64: return Value::integer(json.get_uint64(), Origin::kData);
    case boost::json::kind::double_: return Value::number(json.get_double(), Origin::kData);
    case boost::json::kind::string: return run.heap().string(json.get_string(), Origin::kData);
    case boost::json::kind::array: {
      std::vector<Value> items;
      for (const boost::json::value& item : json.get_array()) items.push_back(TRY(from_json(run, item)));
      return run.heap().list(std::move(items), Origin::kData);
    }
    case boost::json::kind::object: {
      Value dict = run.heap().dict(Origin::kData);
      for (const auto& member : json.get_object()) {
        const Value key = TRY(run.heap().string(member.key(), Origin::kData));
        TRY(dict_set(run, dict.dict(), key, TRY(from_json(run, member.value()))));
      }
      return dict;
    }
  }
  return Value();
}

}  // namespace

base::Error Runtime::error(std::string_view what) const {
  return {base::ErrorCode::kInvalidParams, fmt::format("chat template, line {}: {}", line_, what), {}};
}

base::Error Runtime::undefined_error(const Value& value) const {
  // A name that came out of the caller's data stays there.
  const TextPtr& name = value.undefined_name();
  if (!name || name->origin() == Origin::kData) return error("an undefined value is used");
  return error(fmt::format("'{}' is undefined", name->bytes().substr(0, 100)));
}

base::Result<> Runtime::check(std::uint64_t steps) {
  if (!budget().step(steps)) return base::fail(budget().failure());
  return {};
}

base::Result<> Runtime::Level::check() const {
  const int depth_max = run_.input_.limits.depth_max;
  if (run_.depth_ <= depth_max) return {};
  return base::fail(run_.error(fmt::format("nested deeper than {} levels", depth_max)));
}

base::Result<RenderedText> Runtime::render(const Program& program) {
  variables_ = heap_.dict();
  for (const auto& member : input_.variables) {
    const Value key = TRY(heap_.string(member.key()));
    TRY(dict_set(*this, variables_.dict(), key, TRY(from_json(*this, member.value()))));
  }
  const auto set_token = [&](std::string_view name, const std::optional<std::string>& token) -> base::Result<> {
    if (!token) return {};
    return dict_set(*this, variables_.dict(), TRY(heap_.string(name)), TRY(heap_.string(*token)));
  };
  TRY(set_token("bos_token", input_.bos_token));
  TRY(set_token("eos_token", input_.eos_token));
  auto* activation = make_activation(nullptr, program.slots_count);
  TextBuilder out(budget());
  enter(program.scope, *activation);
  TRY(exec(program.body, *activation, out));
  TRY(check());
  RenderedText rendered;
  std::size_t begin = 0;
  for (const OriginRun& run : out.runs()) {
    rendered.runs.push_back({out.bytes().substr(begin, run.end - begin), run.origin});
    begin = run.end;
  }
  return rendered;
}

Value& Runtime::variable(const SlotRef& ref, Activation& activation) const {
  Activation* owner = &activation;
  for (int i = 0; i < ref.hops; ++i) owner = owner->parent;
  return owner->slots[static_cast<std::size_t>(ref.slot)];
}

Value Runtime::resolve(const std::string& name) {
  const auto key = heap_.string(name);
  const auto found = key ? dict_find(*this, variables_.dict(), *key) : base::Result<Value*>(nullptr);
  if (found && *found != nullptr) return **found;
  const Builtin* global = find_global(name);
  if (global == nullptr) return Value::missing();
  auto* function = heap_.make<Function>();
  function->builtin = global;
  return Value::object(Kind::kFunction, function);
}

Activation* Runtime::make_activation(Activation* parent, int slots_count) {
  budget().allocate(static_cast<std::size_t>(slots_count) * sizeof(Value));
  return heap_.make<Activation>(parent, slots_count);
}

void Runtime::enter(const Scope& scope, Activation& activation) {
  budget().step(scope.loads.size() / 16);
  for (const Load& load : scope.loads) {
    Value& slot = activation.slots[static_cast<std::size_t>(load.slot)];
    switch (load.kind) {
      case Load::Kind::kParameter: break;
      case Load::Kind::kResolve: slot = resolve(load.name); break;
      case Load::Kind::kAlias: slot = Value(variable(load.alias, activation)); break;
      case Load::Kind::kMissing: slot = Value::missing(); break;
    }
  }
}

void Runtime::leave(const Scope& scope, Activation& activation) {
  for (const Load& load : scope.loads) activation.slots[static_cast<std::size_t>(load.slot)] = Value::missing();
}

base::Result<> Runtime::assign(const Target& target, const Value& value, Activation& activation) {
  switch (target.kind) {
    case Target::Kind::kName: variable(target.slot, activation) = value; return {};
    case Target::Kind::kNamespaceAttribute: {
      const Value holder = variable(target.slot, activation);
      if (!holder.is(Kind::kNamespace)) return base::fail(error(fmt::format("'{}' is no namespace", target.name)));
      return dict_set(*this, holder.dict(), Value::string(literal_text(target.attribute)), value);
    }
    case Target::Kind::kTuple: break;
  }
  const std::vector<Value> items = TRY(elements_of(*this, value));
  if (items.size() != target.items.size())
    return base::fail(error(fmt::format("{} values for {} names", items.size(), target.items.size())));
  for (std::size_t i = 0; i < items.size(); ++i) TRY(assign(target.items[i], items[i], activation));
  return {};
}

base::Result<Value> Runtime::take_string(TextBuilder& builder) { return Value::string(TRY(builder.take())); }

}  // namespace llorch::text::jinja
