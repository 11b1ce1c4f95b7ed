// range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
#include <algorithm>
#include <ctime>
#include <limits>

#include "text/jinja/library/library.h"
#include "text/jinja/refusal.h"
#include "text/jinja/value/operations.h"

namespace llorch::text::jinja {
namespace {

base::Result<Value> make_range(Runtime& run, const Value&, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"start", "stop", "step"}, 1));
  auto* range = run.heap().make<Range>();
  Origin origin = Origin::kTemplate;
  const auto bound = [&](const Value& value) -> base::Result<Int> {
    const Int number = TRY(index_of(run, value));
    origin = both(origin, value.origin());
    if (number > std::numeric_limits<std::int64_t>::max() || number < std::numeric_limits<std::int64_t>::min())
      return base::fail(run.error("a bound of a range is too large"));
    return number;
  };
  range->start = given(a[1]) ? TRY(bound(a[0])) : Int{0};
  range->stop = TRY(bound(given(a[1]) ? a[1] : a[0]));
  if (given(a[2])) range->step = TRY(bound(a[2]));
  if (range->step == 0) return base::fail(run.error("a range's step is zero"));
  return Value::object(Kind::kRange, range, origin);
}

// dict(mapping or pairs, **more), also for namespace.
base::Result<> fill_dict(Runtime& run, Dict& dict, CallArgs& arguments) {
  if (arguments.positional.size() > 1) return base::fail(run.error("too many arguments"));
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is(Kind::kDict)) {
      for (const Dict::Entry& entry : source.dict().entries) TRY(dict_set(run, dict, entry.key, entry.value));
    } else {
      for (const Value& pair : TRY(elements_of(run, source))) {
        const std::vector<Value> key_and_value = TRY(elements_of(run, pair));
        if (key_and_value.size() != 2) return base::fail(run.error("an entry of a dict is no pair"));
        TRY(dict_set(run, dict, key_and_value[0], key_and_value[1]));
      }
    }
  }
  for (const auto& [name, value] : arguments.keyword) TRY(dict_set(run, dict, TRY(run.heap().string(name)), value));
  return {};
}

base::Result<Value> make_dict(Runtime& run, const Value&, CallArgs& arguments) {
  const bool of_data = !arguments.positional.empty() && arguments.positional[0].origin() == Origin::kData;
  Value dict = run.heap().dict(of_data ? Origin::kData : Origin::kTemplate);
  TRY(fill_dict(run, dict.dict(), arguments));
  return dict;
}

base::Result<Value> make_namespace(Runtime& run, const Value&, CallArgs& arguments) {
  auto* attributes = run.heap().make<Dict>();
  TRY(fill_dict(run, *attributes, arguments));
  return Value::object(Kind::kNamespace, attributes);
}

base::Result<Value> make_cycler(Runtime& run, const Value&, CallArgs& arguments) {
  if (arguments.positional.empty() || !arguments.keyword.empty()) return base::fail(run.error("a cycler needs items"));
  auto* cycler = run.heap().make<Cycler>();
  cycler->items = std::move(arguments.positional);
  return Value::object(Kind::kCycler, cycler);
}

base::Result<Value> make_joiner(Runtime& run, const Value&, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"sep"}, 0));
  auto* joiner = run.heap().make<Joiner>();
  joiner->separator = given(a[0]) ? a[0] : TRY(run.heap().string(", "));
  return Value::object(Kind::kJoiner, joiner);
}

base::Result<Value> raise_exception(Runtime& run, const Value&, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"message"}, 1));
  const TextPtr text = TRY(to_text(run, a[0]));
  // The template's own words only.
  std::string shown;
  std::size_t begin = 0;
  for (const OriginRun& piece : text->runs()) {
    shown += piece.origin == Origin::kTemplate ? text->bytes().substr(begin, piece.end - begin) : "...";
    begin = piece.end;
  }
  if (shown.size() > 500) {
    shown.resize(500);
    while (!shown.empty() && (static_cast<unsigned char>(shown.back()) & 0xC0) == 0x80) shown.pop_back();
    if (!shown.empty() && static_cast<unsigned char>(shown.back()) >= 0xC0) shown.pop_back();
  }
  return base::fail(run.error(fmt::format("the model's template refuses this request: {}", shown)).with(kRefusal, 1));
}

base::Result<Value> strftime_now(Runtime& run, const Value&, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"format"}, 1));
  if (!a[0].is(Kind::kString)) return base::fail(run.error("strftime_now needs a format"));
  const Text& format = a[0].as_text();
  if (format.bytes().size() > 256) return base::fail(run.error("a time format is longer than 256 bytes"));
  const std::time_t seconds = run.input().now.time_since_epoch().count();
  std::tm utc{};
  if (gmtime_r(&seconds, &utc) == nullptr) return base::fail(run.error("the time has no date"));
  std::string shown;
  const std::string& bytes = format.bytes();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '%') {
      shown += bytes[i];
      continue;
    }
    // Glibc's flags, which Python's strftime passes on: %-d has no padding.
    std::string directive = "%";
    if (i + 1 < bytes.size() && (bytes[i + 1] == '-' || bytes[i + 1] == '_')) directive += bytes[++i];
    constexpr std::string_view kLetters = "aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYZz%";
    if (i + 1 >= bytes.size() || kLetters.find(bytes[i + 1]) == std::string_view::npos)
      return base::fail(run.error("a time format has an unknown directive"));
    directive += bytes[++i];
    // A time without a zone shows none; Python's %f and %s are not the C library's.
    if (bytes[i] == 'Z' || bytes[i] == 'z') continue;
    if (bytes[i] == 's') {
      shown += std::to_string(seconds);
      continue;
    }
    char buffer[128];
    const std::size_t size = std::strftime(buffer, sizeof buffer, directive.c_str(), &utc);
    shown.append(buffer, size);
  }
  return run.heap().string(shown, format.origin());
}

constexpr Builtin kGlobals[] = {
    {"cycler", make_cycler},       {"dict", make_dict},
    {"joiner", make_joiner},       {"lipsum", nullptr},
    {"namespace", make_namespace}, {"raise_exception", raise_exception},
    {"range", make_range},         {"strftime_now", strftime_now},
};

}  // namespace

const Builtin* find_global(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kGlobals), std::end(kGlobals), [&](const Builtin& b) { return b.name == name; });
  return found == std::end(kGlobals) ? nullptr : found;
}

}  // namespace llorch::text::jinja
