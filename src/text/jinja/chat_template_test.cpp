#include "text/jinja/chat_template.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace llorch::text::jinja {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

RenderInput input_of(const json::object& variables, std::int64_t now = 0) {
  RenderInput input;
  input.variables = variables;
  for (const auto& [name, token] :
       {std::pair{"bos_token", &input.bos_token}, std::pair{"eos_token", &input.eos_token}}) {
    if (const json::value* given = variables.if_contains(name)) *token = std::string(given->as_string());
  }
  input.now = std::chrono::sys_seconds(std::chrono::seconds(now));
  return input;
}

base::Result<RenderedText> render(std::string_view source, const json::object& variables = {}, std::int64_t now = 0) {
  const ChatTemplate parsed = TRY(ChatTemplate::parse(source));
  return parsed.render(input_of(variables, now));
}

std::string text_of(std::string_view source, const json::object& variables = {}) {
  const auto rendered = render(source, variables);
  return rendered ? rendered->text() : "error: " + rendered.error().message;
}

// "template|data|template" with the runs in [] when they are data.
std::string origins_of(std::string_view source, const json::object& variables) {
  const auto rendered = render(source, variables);
  if (!rendered) return "error: " + rendered.error().message;
  std::string shown;
  for (const TextRun& run : rendered->runs) shown += run.origin == Origin::kData ? "[" + run.text + "]" : run.text;
  return shown;
}

void expect_case(const std::string& what, const json::object& expected, const base::Result<RenderedText>& rendered) {
  if (expected.contains("error")) {
    EXPECT_FALSE(rendered) << what;
    EXPECT_TRUE(rendered || !rendered.error().message.empty()) << what;
    return;
  }
  const json::value* text = expected.if_contains("text");
  if (text == nullptr) text = &expected.at("expected");
  ASSERT_TRUE(rendered) << what << ": " << rendered.error().message;
  EXPECT_EQ(rendered->text(), std::string(text->as_string())) << what;
  const RenderedText& result = *rendered;
  for (std::size_t i = 0; i < result.runs.size(); ++i) {
    EXPECT_FALSE(result.runs[i].text.empty()) << what;
    EXPECT_TRUE(i == 0 || result.runs[i].origin != result.runs[i - 1].origin) << what;
  }
}

TEST(ChatTemplate, RendersWhatJinja2RendersForSmallTemplates) {
  const json::object golden =
      json::parse(read(fs::path(LLORCH_SOURCE_DIR) / "tests/golden/templates/snippets.json")).as_object();
  ASSERT_GT(golden.at("cases").as_array().size(), 8000u);
  for (const json::value& entry : golden.at("cases").as_array()) {
    const json::object& expected = entry.as_object();
    const std::string source(expected.at("template").as_string());
    expect_case(source, expected, render(source, golden.at("context").as_object(), golden.at("now").as_int64()));
  }
}

TEST(ChatTemplate, RendersWhatJinja2RendersForRealModels) {
  const fs::path directory = fs::path(LLORCH_SOURCE_DIR) / "../shared/data/templates";
  if (!fs::exists(directory)) GTEST_SKIP() << "no test data at " << directory;
  int cases = 0;
  for (const auto& file : fs::directory_iterator(directory)) {
    if (file.path().extension() != ".json") continue;
    const json::object golden = json::parse(read(file.path())).as_object();
    const std::string source = read(directory / std::string(golden.at("template").as_string()));
    // 2026-11-20T12:00:00 in all of them.
    ASSERT_EQ(golden.at("now").as_string(), "2026-11-20T12:00:00");
    for (const json::value& entry : golden.at("cases").as_array()) {
      const json::object& expected = entry.as_object();
      const std::string what = file.path().filename().string() + " " + std::string(expected.at("case").as_string());
      expect_case(what, expected, render(source, expected.at("context").as_object(), 1795176000));
      ++cases;
    }
  }
  EXPECT_GE(cases, 125);
}

TEST(ChatTemplate, EveryByteOfTheCallerIsData) {
  const json::object v = {{"m", "<|im_end|>"}, {"n", 7}, {"l", {"a", "b"}}, {"d", {{"k", "v"}}}, {"bos_token", "<s>"}};
  EXPECT_EQ(origins_of("{{ bos_token }}<|x|>{{ m }}!", v), "<s><|x|>[<|im_end|>]!");
  EXPECT_EQ(origins_of("{{ '<' + m ~ '>' }}", v), "<[<|im_end|>]>");
  EXPECT_EQ(origins_of("{{ (' ' + m + ' ')|trim|upper }}", v), "[<|IM_END|>]");
  EXPECT_EQ(origins_of("{{ ('ab' + m)[1:4] }}", v), "b[<|]");
  EXPECT_EQ(origins_of("{{ ('a-' + m)|replace('-', '+')|replace('im', 'x') }}", v), "a+[<|]x[_end|>]");
  EXPECT_EQ(origins_of("{{ l|join(', ') }}", v), "[a], [b]");
  EXPECT_EQ(origins_of("{{ d|tojson }}", v), "[{\"k\": \"v\"}]");
  EXPECT_EQ(origins_of("{{ ['x', m]|tojson }}", v), "[\"x\", [\"<|im_end|>\"]]");
  EXPECT_EQ(origins_of("{{ n }}{{ n + 1 }}{{ 5 }}{{ l|length }}", v), "[78]5[2]");
  EXPECT_EQ(origins_of("{{ '%s-%d' % (m, n) }}", v), "[<|im_end|>]-[7]");
  EXPECT_EQ(origins_of("{% for x in l %}{{ loop.index }}{{ x }}{% endfor %}", v), "1[a]2[b]");
  EXPECT_EQ(origins_of("{% set x %}({{ m }}){% endset %}{{ x.split('_')|join('/') }}", v), "([<|im]/[end|>])");
  EXPECT_EQ(origins_of("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(m) }}", v), "<[<|im_end|>]>");
  EXPECT_EQ(origins_of("{{ m|indent }}{{ m|list|first }}{{ m[::-1] }}", v), "[<|im_end|><>|dne_mi|<]");
  EXPECT_EQ(origins_of("{{ m == '<|im_end|>' }}{{ 1 == 1 }}", v), "[True]True");
}

TEST(ChatTemplate, MessagesNeverShowTheCallersText) {
  const json::object v = {{"secret", "hunter2"}, {"d", {{"hunter2", 1}}}};
  for (const char* source :
       {"{{ raise_exception('no ' ~ secret) }}", "{{ secret.nosuch() }}", "{{ secret + 1 }}", "{{ d[secret].x.y }}",
        "{{ missing[secret] }}", "{{ d.missing[secret].x }}", "{{ [1]|map(secret)|list }}",
        "{{ [1]|select(secret)|list }}", "{{ dict(**d)|int(**d) }}", "{% macro m() %}{% endmacro %}{{ m(**d) }}",
        "{{ d[secret ~ 'x'].y }}", "{{ strftime_now('%Q' ~ secret) }}", "{{ secret|int + secret }}",
        "{{ [secret]|sum }}", "{{ secret|attr(secret) + 1 }}"}) {
    const auto rendered = render(source, v);
    ASSERT_FALSE(rendered) << source;
    EXPECT_EQ(rendered.error().code, base::ErrorCode::kInvalidParams) << source;
    EXPECT_EQ(rendered.error().message.find("hunter2"), std::string::npos) << rendered.error().message;
  }
  EXPECT_EQ(text_of("\n{{ raise_exception('no ' ~ secret ~ '!') }}", v),
            "error: chat template, line 2: the model's template refuses this request: no ...!");
}

TEST(ChatTemplate, StopsAtItsLimits) {
  const auto refused = [](std::string_view source, RenderLimits limits, std::string_view word) {
    const auto parsed = ChatTemplate::parse(source);
    ASSERT_TRUE(parsed) << parsed.error().message;
    RenderInput input;
    input.limits = limits;
    const auto rendered = parsed->render(input);
    ASSERT_FALSE(rendered) << source;
    EXPECT_EQ(rendered.error().code, base::ErrorCode::kInvalidParams);
    EXPECT_NE(rendered.error().message.find(word), std::string::npos) << rendered.error().message;
  };
  refused("{% for a in range(10000000) %}{% endfor %}", {.steps_max = 10'000}, "10000 steps");
  refused("{{ 'x' * 100000 }}", {.output_bytes_max = 1000}, "1000 bytes of output");
  refused("{% set x = 'x' * 1000000000000 %}", {.memory_bytes_max = 1 << 20}, "bytes of memory");
  refused("{% set n = namespace(x='x') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
          {.memory_bytes_max = 1 << 20}, "bytes of memory");
  refused("{% set l = [] %}{% for i in range(99) %}{% set _ = l.append(l) %}{% endfor %}{{ l }}", {}, "nested deeper");
  refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", {}, "nested deeper");
  refused("{% set n = namespace(l=[]) %}{% for i in range(9999) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l|tojson }}",
          {}, "nested deeper");
  refused("{% set l = [1] %}{% for i in l %}{% set _ = l.append(i) %}{% endfor %}", {.steps_max = 100'000}, "steps");
  refused("{{ range(1000000000)|list }}", {.steps_max = 100'000}, "steps");
}

// The least limit on steps that the template renders with.
std::uint64_t steps_of(std::string_view source, const json::object& variables) {
  const auto parsed = ChatTemplate::parse(source);
  if (!parsed) return 0;
  RenderInput input = input_of(variables);
  std::uint64_t too_few = 0, enough = input.limits.steps_max;
  while (enough - too_few > 1) {
    input.limits.steps_max = (too_few + enough) / 2;
    (parsed->render(input) ? enough : too_few) = input.limits.steps_max;
  }
  return enough;
}

// Whatever goes over a text costs steps by the text's bytes, or a template's time has no bound.
TEST(ChatTemplate, WorkOnTextsCostsSteps) {
  constexpr std::size_t kBytes = 1 << 13;
  std::string umlauts;
  for (std::size_t i = 0; i < kBytes / 2; ++i) umlauts += "\u00e4";
  const std::string plain(kBytes, 'a');
  const json::object v = {{"s", plain}, {"t", plain}, {"u", umlauts}, {"d", {{plain, 1}}}};
  const std::uint64_t without = steps_of("{{ 0 }}", v);
  for (const char* source : {"{{ 'b' in s }}",
                             "{{ s == t }}",
                             "{{ s < t }}",
                             "{{ s in [t] }}",
                             "{{ d[s] }}",
                             "{{ (s, 1) in d }}",
                             "{{ u[:1] }}",
                             "{{ u[-1:] }}",
                             "{{ u[9:1:-1] }}",
                             "{{ u|truncate(9) }}",
                             "{{ u|truncate(9, true) }}",
                             "{{ s|wordcount }}",
                             "{{ s|int }}",
                             "{{ s|float }}",
                             "{{ s.find('b') }}",
                             "{{ s.rfind('b') }}",
                             "{{ s.count('b') }}",
                             "{{ s.startswith(t) }}",
                             "{{ s.endswith(t) }}",
                             "{{ s.startswith(('b', t)) }}",
                             "{{ u.startswith('b', 9) }}",
                             "{{ u.find('b', 9) }}",
                             "{{ u.count('b', 9, 12) }}",
                             "{{ s.split('b', 0) }}",
                             "{{ s.partition('b') }}",
                             "{{ s.rpartition('b') }}",
                             "{{ s.removeprefix(t ~ 'b') }}",
                             "{{ s.removesuffix('b' ~ t) }}",
                             "{{ [0]|tojson(indent=s)|length }}",
                             "{{ [0]|tojson(separators=(s, t))|length }}"})
    EXPECT_GE(steps_of(source, v), without + kBytes / 64) << source;
  // A piece costs a step, also one without a byte.
  const json::object commas = {{"s", std::string(kBytes, ',')}, {"n", std::string(kBytes, '\n')}};
  const std::uint64_t without_pieces = steps_of("{{ 0 }}", commas);
  for (const char* source : {"{{ s.split(',')|length }}", "{{ s.rsplit(',')|length }}", "{{ n.splitlines()|length }}",
                             "{{ s.count(',') }}", "{{ n|indent|length }}", "{{ s.replace(',', '')|length }}"})
    EXPECT_GE(steps_of(source, commas), without_pieces + kBytes) << source;
}

TEST(ChatTemplate, WorkOnVariablesAndContainersCostsSteps) {
  std::string assignments;
  for (int i = 0; i < 512; ++i) assignments += "{% set v" + std::to_string(i) + " = 1 %}";
  const json::object none;
  const std::string turn = "{% for i in range(100) %}{% continue %}" + assignments + "{% endfor %}";
  EXPECT_GE(steps_of(turn, none), 100u * 512 / 64);
  const std::string call = "{% macro m() %}{% if false %}" + assignments +
                           "{% endif %}{% endmacro %}{% for i in range(100) %}{{ m() }}{% endfor %}";
  EXPECT_GE(steps_of(call, none), 100u * 512 / 64);
  const std::string removed =
      "{% set l = range(6400)|list %}{% for i in range(100) %}{% set _ = l.remove(i) %}{% endfor %}";
  const std::string popped =
      "{% set l = range(6400)|list %}{% for i in range(100) %}{% set _ = l.pop(0) %}{% endfor %}";
  EXPECT_GE(steps_of(removed, none), steps_of(popped, none));
  // What keeps the variables of its calls keeps their memory.
  const std::string kept = "{% macro m() %}{% if false %}" + assignments +
                           "{% endif %}{% macro n() %}{% endmacro %}{% endmacro %}"
                           "{% for i in range(1000) %}{{ m() }}{% endfor %}";
  const auto parsed = ChatTemplate::parse(kept);
  ASSERT_TRUE(parsed) << parsed.error().message;
  RenderInput input;
  input.limits.memory_bytes_max = 8u << 20;
  const auto rendered = parsed->render(input);
  ASSERT_FALSE(rendered);
  EXPECT_NE(rendered.error().message.find("bytes of memory"), std::string::npos) << rendered.error().message;
}

TEST(ChatTemplate, ArgumentsOfMacrosCostSteps) {
  constexpr std::size_t kNames = 512;
  std::string parameters, arguments;
  for (std::size_t i = 0; i < kNames; ++i) {
    const std::string name = (i == 0 ? "p" : ",p") + std::to_string(i);
    parameters += name;
    arguments += name + "=0";
  }
  const json::object none;
  const std::string macro = "{% macro m(" + parameters + ") %}{% endmacro %}";
  EXPECT_GE(steps_of(macro + "{{ m(" + arguments + ") }}", none), kNames * kNames / 8);
  EXPECT_GE(steps_of(macro + "{{ m() }}", none), kNames) << "each is undefined by its name";
  const std::string name(1 << 14, 'n');
  const std::string named = "{% macro m(" + name + ") %}{% endmacro %}";
  EXPECT_GE(steps_of(named + "{{ m() }}", none), name.size() / 64);
  EXPECT_GE(steps_of(named + "{{ m(" + name + "=0) }}", none), name.size() / 64);
  // Names out of a dict are copied, and compared with those before them.
  const std::string of_two =
      "{% macro m(" + name + "," + name + "b) %}{% endmacro %}{% set d = {'" + name + "': 0, '" + name + "b': 0} %}";
  EXPECT_GE(steps_of(of_two + "{{ m(**d) }}", none), steps_of(of_two + "{{ m(0, 0) }}", none) + 3 * (name.size() / 64));
  // What a macro calls keeps its variables for as long as it runs.
  parameters.clear();
  for (std::size_t i = 0; i < kNames; ++i) parameters += (i == 0 ? "p" : ",p") + std::to_string(i) + "=0";
  const auto parsed = ChatTemplate::parse("{% macro m(" + parameters + ") %}{{ m() }}{% endmacro %}{{ m() }}");
  ASSERT_TRUE(parsed) << parsed.error().message;
  RenderInput input;
  input.limits.memory_bytes_max = 128u << 10;
  const auto rendered = parsed->render(input);
  ASSERT_FALSE(rendered);
  EXPECT_NE(rendered.error().message.find("bytes of memory"), std::string::npos) << rendered.error().message;
}

// As in Python, so that nothing is made of arguments that nobody looks at.
TEST(ChatTemplate, CallsThatTakeNoArgumentsRefuseThem) {
  const std::string set = "{% set j = joiner() %}{% set c = cycler(1, 2) %}";
  EXPECT_EQ(text_of(set + "{{ j() }}{{ j() }}{{ c.next() }}{{ c.next() }}{{ c.reset() }}"), ", 12None");
  for (const char* call : {"j(1)", "j(**{'a': 1})", "c.next(1)", "c.next(**{'a': 1})", "c.reset(1)", "c.reset(a=1)"})
    EXPECT_TRUE(text_of(set + "{{ " + call + " }}").starts_with("error: ")) << call;
  EXPECT_EQ(text_of("{% for i in (1, 1) %}{{ loop.changed(i) }} {% endfor %}"), "True False ");
  EXPECT_TRUE(text_of("{% for i in (1, 1) %}{{ loop.changed(i, a=1) }}{% endfor %}").starts_with("error: "));
}

TEST(ChatTemplate, NamesOfArgumentsDiffer) {
  std::string names;
  for (int i = 0; i < 40'000; ++i) names += "p" + std::to_string(i) + (i % 2 == 0 ? "," : " ,");
  EXPECT_TRUE(ChatTemplate::parse("{% macro m(" + names + "p) %}{% endmacro %}"));
  const auto refusal = [](const std::string& source) {
    const auto parsed = ChatTemplate::parse(source);
    return parsed ? std::string() : parsed.error().message;
  };
  EXPECT_EQ(refusal("{% macro m(" + names + "p7) %}{% endmacro %}"),
            "chat template, line 1: two parameters have one name");
  EXPECT_EQ(refusal("{{ f(a=1, b=2, a=3) }}"), "chat template, line 1: the argument 'a' is given twice");
}

// A search looks at each byte a bounded number of times, also where a text begins like the wanted one everywhere.
TEST(ChatTemplate, SearchesAreLinear) {
  const std::string text(2 << 20, 'a'), half(1 << 20, 'a');
  const json::object v = {{"s", text}, {"front", "b" + half}, {"back", half + "b"}};
  EXPECT_EQ(text_of("{{ back in s }} {{ s.find(back) }} {{ s.rfind(front) }} {{ s.count(back) }}", v), "False -1 -1 0");
  EXPECT_EQ(text_of("{{ s.split(back)|length }} {{ s.rsplit(front)|length }} {{ s.replace(back, '') == s }}", v),
            "1 1 True");
  EXPECT_EQ(text_of("{{ s.partition(back)[0] == s }} {{ s.rpartition(front)[2] == s }}", v), "True True");
  EXPECT_EQ(text_of("{{ 'abcabcab'.rfind('ab') }}{{ 'abcabcab'.rfind('ab', 0, 7) }}{{ 'abcabcab'.rfind('bc', 5) }}"),
            "63-1");
  EXPECT_EQ(text_of("{{ 'aaaa'.rfind('aa') }}{{ 'ab'.rfind('') }}{{ 'aaaaa'.rsplit('aa', 1) }}"), "22['aaa', '']");
  EXPECT_EQ(text_of("{{ '1,2,3'.rsplit(',', 1) }}{{ '1,2,3'.rpartition(',') }}{{ ',1,'.rsplit(',') }}"),
            "['1,2', '3']('1,2', ',', '3')['', '1', '']");
}

TEST(ChatTemplate, PrintsAContainerThatPrintingChanges) {
  // To print a loop with a test is to run the test to the loop's end, and the test makes the container move.
  const std::string list =
      "{% set ns = namespace(a=[]) %}{% for x in range(9) if ns.a.extend(range(4000)) or true %}"
      "{% set _ = ns.a.insert(0, loop) %}{{ ns.a }}{% break %}{% endfor %}";
  const std::string listed = text_of(list);
  EXPECT_TRUE(listed.starts_with("[<LoopContext 1/9>, 0, 1, 2, ")) << listed.substr(0, 200);
  EXPECT_TRUE(listed.ends_with(", 3998, 3999]")) << listed.size();
  const std::string dict =
      "{% set ns = namespace(d={}) %}{% for x in range(99) if ns.d.update({x: x}) or true %}"
      "{% set _ = ns.d.clear() %}{% set _ = ns.d.update({loop: loop}) %}{{ ns.d }}{% break %}{% endfor %}";
  const std::string keyed = text_of(dict);
  EXPECT_TRUE(keyed.starts_with("{<LoopContext 1/99>: <LoopContext 1/99>, 1: 1, ")) << keyed.substr(0, 200);
  EXPECT_TRUE(keyed.ends_with(", 98: 98}")) << keyed.size();
}

TEST(ChatTemplate, RefusesWhatIsNoTemplate) {
  const auto code_of = [](const std::string& source) {
    const auto parsed = ChatTemplate::parse(source);
    return parsed ? "" : std::string(parsed.error().name());
  };
  EXPECT_EQ(code_of(std::string(kTemplateBytesMax + 1, 'a')), "CONFIG_KEY_INVALID");
  EXPECT_EQ(code_of("\xFF"), "CONFIG_KEY_INVALID");
  EXPECT_EQ(code_of("{% include 'x' %}"), "CONFIG_KEY_INVALID");
  EXPECT_EQ(code_of("{{ " + std::string(5000, '(') + std::string(5000, ')') + " }}"), "CONFIG_KEY_INVALID");
  EXPECT_EQ(code_of("{{ " + std::string(5000, '-') + "1 }}"), "CONFIG_KEY_INVALID");
  std::string sum = "{{ 1", blocks;
  for (int i = 0; i < 5000; ++i) sum += " + 1";
  EXPECT_EQ(code_of(sum + " }}"), "CONFIG_KEY_INVALID");
  for (int i = 0; i < 5000; ++i) blocks += "{% if x %}";
  EXPECT_EQ(code_of(blocks), "CONFIG_KEY_INVALID");
  const auto parsed = ChatTemplate::parse("a\nb\n{% if %}");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().message, "chat template, line 3: expected an expression, found '%}'");
}

// What is known of names is copied for each branch.
TEST(ChatTemplate, NamesTimesBranchesAreBounded) {
  const auto source_of = [](int names, int branches) {
    std::string source;
    for (int i = 0; i < names; ++i) source += "{{v" + std::to_string(i) + "}}";
    source += "{%if x%}";
    for (int i = 0; i < branches; ++i) source += "{%elif x%}";
    return source + "{%endif%}";
  };
  EXPECT_TRUE(ChatTemplate::parse(source_of(500, 500)));
  EXPECT_TRUE(ChatTemplate::parse(source_of(5, 8000)));
  EXPECT_TRUE(ChatTemplate::parse(source_of(8000, 5)));
  const auto parsed = ChatTemplate::parse(source_of(3000, 3000));
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, base::ErrorCode::kConfigKeyInvalid);
  EXPECT_EQ(parsed.error().message, "chat template, line 1: it has too many names in too many branches");
}

TEST(ChatTemplate, OneTemplateServesManyThreads) {
  const auto parsed = ChatTemplate::parse("{% for m in messages %}<|{{ m.role }}|>{{ m.content|upper }}{% endfor %}");
  ASSERT_TRUE(parsed);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&parsed, t] {
      const std::string role = "r" + std::to_string(t);
      RenderInput input;
      input.variables = {{"messages", json::array{json::object{{"role", role}, {"content", "x"}}}}};
      for (int i = 0; i < 200; ++i) {
        const auto rendered = parsed->render(input);
        ASSERT_TRUE(rendered);
        EXPECT_EQ(rendered->text(), "<|" + role + "|>X");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace llorch::text::jinja
