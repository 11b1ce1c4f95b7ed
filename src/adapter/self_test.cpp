#include "adapter/self_test.h"

#include <fmt/core.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "net/sse/sse.h"
#include "wire/json.h"
#include "wire/worker.h"

namespace llorch::adapter {
namespace {

using base::ErrorCode;

// What came of one job, as far as it has come.
struct Answer {
  std::mutex mutex;
  std::condition_variable changed;
  int status = 0;
  net::sse::Decoder decoder;
  bool token = false, ended = false;
  net::sse::Event last;
  std::string refusal;

  template <class Predicate>
  bool wait(std::int64_t timeout_ms, Predicate predicate) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), predicate);
  }
};

enum class Form { kPrompt, kMessages };

net::StreamHandle ask(net::Client& client, const SelfTestServer& server, Form form, std::int64_t max_tokens,
                      const std::shared_ptr<Answer>& answer) {
  // At the ordinary temperature: a model may have no way to be greedy.
  wire::ExecuteRequest request{.job_id = "self-test", .max_tokens = max_tokens, .seed = 1};
  if (form == Form::kPrompt) {
    request.prompt = "1 2 3";
  } else {
    request.messages = wire::JsonArray{R"([{"role":"user","content":"1 2 3"}])"};
  }
  return client.stream(
      {.method = "POST", .url = server.url + "/execute", .bearer = server.bearer, .body = wire::encode(request)},
      {.on_response =
           [answer](int status, const net::http::Headers&) {
             const std::lock_guard lock(answer->mutex);
             answer->status = status;
           },
       .on_data =
           [answer](std::string_view bytes) {
             const std::lock_guard lock(answer->mutex);
             if (answer->status != 200) answer->refusal += bytes;
             std::vector<net::sse::Event> events;
             if (!answer->decoder.feed(bytes, events)) answer->ended = true;
             for (auto& event : events) {
               answer->token = answer->token || event.event == "token";
               answer->last = std::move(event);
             }
             answer->changed.notify_all();
           },
       .on_end =
           [answer](base::Result<>) {
             const std::lock_guard lock(answer->mutex);
             answer->ended = true;
             answer->changed.notify_all();
           }});
}

tl::unexpected<base::Error> failed(std::string what) {
  return base::fail(ErrorCode::kSelfTestFailed, "self-test: " + std::move(what));
}

std::string told(const Answer& answer) {
  std::string_view json = answer.last.event == "error" ? std::string_view(answer.last.data) : std::string_view();
  if (const auto body = wire::decode<wire::ErrorBody>(json)) return fmt::format("{}: {}", body->code, body->message);
  return fmt::format("status {}, last event {}", answer.status, answer.last.event);
}

// Whether it was refused for what it asks.
bool is_refused(const Answer& answer) {
  if (answer.last.event != "error") return false;
  const auto body = wire::decode<wire::ErrorBody>(answer.last.data);
  return body && (body->code == base::info(ErrorCode::kModelNotFound).name ||
                  body->code == base::info(ErrorCode::kInvalidParams).name);
}

// Of two tokens. The form in which the engine takes it.
base::Result<Form> short_answer(net::Client& client, const SelfTestServer& server, std::int64_t timeout_ms) {
  for (const Form form : {Form::kPrompt, Form::kMessages}) {
    const auto whole = std::make_shared<Answer>();
    ask(client, server, form, 2, whole);
    if (!whole->wait(timeout_ms, [&] { return whole->ended; })) break;
    if (whole->last.event == "end") return form;
    const bool is_last = form == Form::kMessages || !server.may_lack_prompts || !is_refused(*whole);
    if (is_last) return failed("a job of two tokens failed with " + told(*whole));
  }
  return failed("a job of two tokens did not end in time");
}

}  // namespace

base::Result<> self_test(net::Client& client, const SelfTestServer& server, std::int64_t timeout_ms) {
  const Form form = TRY(short_answer(client, server, timeout_ms));
  const auto cut = std::make_shared<Answer>();
  ask(client, server, form, 256, cut);
  if (!cut->wait(timeout_ms, [&] { return cut->token || cut->ended; })) return failed("a second job gave no token");
  const auto cancelled = client.call(
      {.method = "POST", .url = server.url + "/cancel", .bearer = server.bearer, .body = R"({"job_id":"self-test"})"});
  if (!cancelled || cancelled->status != 202) return failed("/cancel did not answer 202");
  if (!cut->wait(timeout_ms, [&] { return cut->ended; })) return failed("a cancelled job did not end");
  const auto metrics = client.call({.url = server.url + "/metrics", .bearer = server.bearer});
  if (!metrics || metrics->status != 200) return failed("/metrics did not answer 200");
  return {};
}

}  // namespace llorch::adapter
