// What an API of others costs a request over /v2: its body read, its prompt told to the model, its answer written. Usage:
// gateway_bench [requests per API] [tokens of an answer]. One line of JSON per API; the bar is 100 us added at the 99th
// percentile.
//
// Each request is made beside one of /v2 with the same prompt, first one then the other in turn, by the functions that
// orchestratord calls for it. What is added is the difference within a pair; the rest of a request's way is the same code.
// The model's tokens are bytes, which makes prompts longer than they are, for either side.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/assert.h"
#include "orchestratord/http/anthropic/renderer.h"
#include "orchestratord/http/ollama/renderer.h"
#include "orchestratord/http/openai/calls.h"
#include "orchestratord/http/tasks/prompt.h"
#include "orchestratord/http/tasks/result_renderer.h"
#include "orchestratord/http/tasks/submit.h"
#include "orchestratord/streams/replay/sse_renderer.h"
#include "text/test_vocabularies.h"

namespace {

using namespace llorch;
using namespace llorch::orchestratord;
using ReadingPtr = std::shared_ptr<const http::chat::Reading>;
using RendererPtr = std::shared_ptr<streams::Renderer>;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kTemplate =
    "{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}";
constexpr std::string_view kPrompt = R"("prompt":"Tell me of the small bird that sang in winter, and who heard it.")";
constexpr std::string_view kSystem = R"("Answer in one paragraph.")";
constexpr std::string_view kUser =
    R"({"role":"user","content":"Tell me of the small bird that sang in winter, and who heard it."})";
constexpr std::array<std::string_view, 8> kTexts{" the", " small", ",", " bird", " said", " \"", "Hello!", "\n"};

const http::chat::AnswerIdentity kIdentity{
    .job_id = base::JobId("0b5dbe0e-9c7d-4f3a-8f2b-6c1d2e3f4a5b"),
    .correlation_id = base::CorrelationId("8f2b6c1d-9c7d-4f3a-8f2b-6c1d2e3f4a5b"),
    .created_unix_s = 1764000000};

models::KnownModel known_model() {
  constexpr auto kControl = text::TokenKind::kControl;
  text::TokenizerData data = text::byte_bpe_data({}, {{"<|im_start|>", kControl}, {"<|im_end|>", kControl}});
  data.chat_template = std::string(kTemplate);
  models::KnownModel out;
  out.chat = std::make_shared<const text::Chat>(data);
  out.format = out.format_with_tools = std::make_shared<const models::ChatFormat>(
      models::ChatFormat::of(kTemplate, models::control_tokens(data)));
  out.tokenizer = std::make_shared<const text::Tokenizer>(text::Tokenizer::create(std::move(data)).value());
  return out;
}

// A body that has been read.
struct Asked {
  wire::SubmitRequest submission;
  std::optional<http::chat::ToolUse> tool_use;
  std::function<RendererPtr(ReadingPtr)> renderer;
};

struct Api {
  std::string_view name;
  std::string body;
  std::function<Asked(std::string_view body)> read;
};

// `members` of a body, behind the model's name.
std::string body_of(std::string_view members, std::optional<bool> stream = {}) {
  return fmt::format(R"({{"model":"tale-5m",{}{}}})", members, stream ? fmt::format(R"(,"stream":{})", *stream) : "");
}

Api tasks_api(std::string_view members, bool stream) {
  return {"v2", body_of(members), [stream](auto body) {
            return Asked{http::tasks::decode_request(std::string(body)).value(), {}, [stream](const auto&) -> RendererPtr {
                           if (stream) return std::make_shared<streams::SseRenderer>();
                           return std::make_shared<http::tasks::ResultRenderer>(kIdentity.job_id.value, "task",
                                                                                wire::Workload::kCompletion);
                         }};
          }};
}

Api openai_api(std::string_view path, std::string body) {
  return {path, std::move(body), [decode = http::openai::decoder_of(path)](auto text) {
            auto call = std::make_shared<http::openai::Call>(decode(text).value());
            return Asked{call->submission, call->tool_use, [call](ReadingPtr reading) {
                           return http::openai::make_renderer(*call, kIdentity, std::move(reading));
                         }};
          }};
}

// Of an API with one renderer for both ways.
template <class Renderer>
Api other_api(std::string_view path, std::string body, auto decode) {
  return {path, std::move(body), [decode](auto text) {
            auto request = decode(text).value();
            return Asked{std::move(request.submission), std::move(request.tool_use),
                         [answer = std::move(request.answer)](ReadingPtr reading) mutable -> RendererPtr {
                           answer.reading = std::move(reading);
                           return std::make_shared<Renderer>(answer, kIdentity);
                         }};
          }};
}

struct Times {
  std::array<double, 3> us{};  // body, prompt, answer
  double whole() const { return us[0] + us[1] + us[2]; }
};

Times run(const Api& api, const models::KnownModel& model, std::int64_t tokens, std::string& out) {
  std::array<Clock::time_point, 4> at;
  out.clear();
  at[0] = Clock::now();
  Asked asked = api.read(api.body);
  at[1] = Clock::now();
  auto inputs = http::tasks::take_inputs(std::move(asked.submission), {}).value();
  const auto prepared = http::tasks::prepare(std::move(inputs), asked.tool_use, model, {.unix_ms = 1764000000000}).value();
  at[2] = Clock::now();
  const RendererPtr renderer = asked.renderer(prepared.reading);
  streams::EventId id;
  renderer->queued({.job_id = kIdentity.job_id.value}, id, out);
  renderer->started({.job_id = kIdentity.job_id.value, .seed = 7}, id, out);
  for (std::int64_t i = 0; i < tokens; ++i) {
    id.seq = streams::kFirstTokenSeq + i;
    renderer->token({.t = kTexts[static_cast<std::size_t>(i) % kTexts.size()], .i = i}, id, out);
  }
  renderer->end({.job_id = kIdentity.job_id.value, .tokens_in = 11, .tokens_out = tokens}, id, out);
  at[3] = Clock::now();
  ASSERT(!out.empty());
  Times times;
  for (std::size_t i = 0; i < 3; ++i) times.us[i] = std::chrono::duration<double, std::micro>(at[i + 1] - at[i]).count();
  return times;
}

std::string percentiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](std::size_t thousandths) { return values[(values.size() - 1) * thousandths / 1000]; };
  return fmt::format(R"({{"p50_us":{:.1f},"p99_us":{:.1f},"p99_9_us":{:.1f}}})", at(500), at(990), at(999));
}

void measure(const Api& api, const Api& tasks, const models::KnownModel& model, bool stream, std::size_t requests,
             std::int64_t tokens) {
  std::array<std::vector<double>, 3> stages;
  std::vector<double> wholes, of_tasks, added;
  std::string out;
  for (std::size_t i = 0; i < requests + requests / 10; ++i) {
    Times first = run(i % 2 == 0 ? api : tasks, model, tokens, out);
    Times second = run(i % 2 == 0 ? tasks : api, model, tokens, out);
    if (i % 2 != 0) std::swap(first, second);
    if (i < requests / 10) continue;  // warms up
    for (std::size_t stage = 0; stage < stages.size(); ++stage) stages[stage].push_back(first.us[stage]);
    wholes.push_back(first.whole());
    of_tasks.push_back(second.whole());
    added.push_back(first.whole() - second.whole());
  }
  fmt::print(R"({{"api":"{}","stream":{},"tokens":{},"body":{},"prompt":{},"answer":{},"whole":{},"v2":{},"added":{}}})"
             "\n",
             api.name, stream, tokens, percentiles(stages[0]), percentiles(stages[1]), percentiles(stages[2]),
             percentiles(wholes), percentiles(of_tasks), percentiles(added));
}

}  // namespace

int main(int argc, char** argv) {
  const auto requests = static_cast<std::size_t>(argc > 1 ? std::atoll(argv[1]) : 20'000);
  const std::int64_t tokens = argc > 2 ? std::atoll(argv[2]) : 1;
  const models::KnownModel model = known_model();
  const std::string prompt = fmt::format(R"({},"max_tokens":64)", kPrompt);
  const std::string system = fmt::format(R"({{"role":"system","content":{}}})", kSystem);
  const std::string chat = fmt::format(R"("messages":[{},{}],"max_tokens":64)", system, kUser);
  const std::string input = fmt::format(R"("instructions":{},"input":[{}],"max_output_tokens":64)", kSystem, kUser);
  const std::string turn = fmt::format(R"("system":{},"messages":[{}],"max_tokens":64)", kSystem, kUser);
  const std::string line = fmt::format(R"("messages":[{},{}],"options":{{"num_predict":64}})", system, kUser);
  for (const bool stream : {false, true}) {
    const auto beside = [&](const std::string& members, const Api& api) {
      measure(api, tasks_api(members, stream), model, stream, requests, tokens);
    };
    beside(prompt, openai_api("/v1/completions", body_of(prompt, stream)));
    beside(chat, openai_api("/v1/chat/completions", body_of(chat, stream)));
    beside(chat, openai_api("/v1/responses", body_of(input, stream)));
    const auto decode_messages = [](std::string_view text) { return http::anthropic::decode_messages(text, 32768); };
    beside(chat,
           other_api<http::anthropic::MessageRenderer>("/v1/messages", body_of(turn, stream), decode_messages));
    beside(chat, other_api<http::ollama::AnswerRenderer>("/api/chat", body_of(line, stream), http::ollama::decode_chat));
  }
  return 0;
}
