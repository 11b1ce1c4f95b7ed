// The pure parts: forms, lines of a batch, events as text.
#include <gtest/gtest.h>

#include "base/entropy.h"
#include "orchestratord/http/openai/deferred/batch_input.h"
#include "orchestratord/http/openai/deferred/event_text.h"
#include "orchestratord/http/openai/deferred/kept_items.h"
#include "orchestratord/http/openai/deferred/kept_text.h"
#include "orchestratord/http/openai/deferred/multipart.h"
#include "orchestratord/http/openai/errors.h"
#include "orchestratord/http/openai/response_renderer.h"
#include "orchestratord/http/tasks/kept_facts.h"

namespace llorch::orchestratord::http::openai {
namespace {

using tasks::caller_from;
using tasks::to_json;
constexpr std::string_view kType = "multipart/form-data; boundary=b";

std::string form(std::string_view content) {
  std::string out = "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n";
  out += "--b\r\ncontent-disposition: form-data; name=file; filename=\"a \\\"b\\\".jsonl\"\r\nX: y\r\n\r\n";
  out.append(content).append("\r\n--b--\r\n");
  return out;
}

TEST(Form, PartsAreWhatWasSent) {
  for (const std::string_view content : {"", "x", "\r\n", "x--b", "\r\n--c\r\n", "{\"a\":1}\n", "\r\n-\r\n--"}) {
    const std::string body = form(content);
    const auto parts = parse_form(kType, body).value();
    ASSERT_EQ(parts.size(), 2U);
    EXPECT_EQ(parts[0].name, "purpose");
    EXPECT_EQ(parts[0].content, "batch");
    EXPECT_EQ(parts[1].filename, "a \"b\".jsonl");
    EXPECT_EQ(parts[1].content, content);
  }
  EXPECT_TRUE(parse_form("Multipart/Form-Data; charset=x; boundary=\"b\"", form("x")));
}

TEST(Form, WhatIsCutOffIsRefused) {
  const std::string body = form("content");
  for (std::size_t length = 0; length + 4 < body.size(); ++length) {
    EXPECT_FALSE(parse_form(kType, body.substr(0, length))) << length;
  }
  EXPECT_FALSE(parse_form("multipart/form-data", body));
  EXPECT_FALSE(parse_form("multipart/form-data; boundary=" + std::string(71, 'x'), body));
  EXPECT_FALSE(parse_form("text/plain; boundary=b", body));
}

TEST(Form, HasSoManyParts) {
  std::string body;
  for (std::size_t i = 0; i <= kFormPartsMax; ++i) {
    body += "--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n1\r\n";
  }
  EXPECT_FALSE(parse_form(kType, body + "--b--"));
}

std::string kept_response(std::string_view status, std::string_view output) {
  return "event: a\ndata: {\"type\":\"a\",\"sequence_number\":0}\n\n"
         "event: b\ndata: {\"type\":\"b\",\"sequence_number\":1,\"response\":{\"status\":\"" +
         std::string(status) + "\",\"output\":" + std::string(output) + "}}\n\n";
}

TEST(KeptText, GoesOnWithTheInputAndTheOutputOfTheResponseBefore) {
  const std::string first = kept_text(input_of(R"({"model":"m","input":"hi"})"),
                                      kept_response("completed", R"([{"type":"message","id":"x"}])"));
  const auto second = continued(R"({"model":"m","input":[{"role":"user","content":"and?"}],"seed":7})", first).value();
  EXPECT_EQ(second,
            R"({"model":"m","input":[{"type":"message","role":"user","content":"hi"},{"type":"message","id":"x"},)"
            R"({"role":"user","content":"and?"}],"seed":7})");
  // What is kept of the second one is the whole conversation, so that it needs the first one no more.
  const std::string kept = kept_text(input_of(second), kept_response("incomplete", "[]"));
  EXPECT_EQ(continued(R"({"input":"x"})", kept).value(),
            R"({"input":[{"type":"message","role":"user","content":"hi"},{"type":"message","id":"x"},)"
            R"({"role":"user","content":"and?"},{"type":"message","role":"user","content":"x"}]})");
}

TEST(KeptText, OnlyOfWhatHasAnOutput) {
  const std::string input = input_of(R"({"input":"hi"})");
  for (const char* status : {"failed", "cancelled"}) {
    EXPECT_EQ(continued(R"({"input":"x"})", kept_text(input, kept_response(status, "[]"))).error().code,
              base::ErrorCode::kConflict);
  }
  EXPECT_EQ(continued(R"({"input":"x"})", kept_response("completed", "[]")).error().code, base::ErrorCode::kNotFound)
      << "of an earlier version, without its input";
  EXPECT_EQ(continued(R"({"input":"x"})", kept_text(input, "")).error().code, base::ErrorCode::kCorruptFile);
}

// Copilot looks for the status 400 and the code of this error, and sends the whole conversation then.
TEST(KeptText, OfAResponseThatIsNotKeptTheErrorIsOfTheField) {
  const auto refused = [](base::ErrorCode code) {
    return error_response(of_previous_response({code, "m", {}}), base::CorrelationId("corr-1"));
  };
  const auto not_kept = refused(base::ErrorCode::kNotFound);
  EXPECT_EQ(not_kept.status, 400);
  EXPECT_TRUE(not_kept.body.starts_with(
      R"({"error":{"message":"m; send the whole conversation as input","type":"invalid_request_error",)"
      R"("param":"previous_response_id","code":"previous_response_not_found",)"))
      << not_kept.body;
  const auto runs = refused(base::ErrorCode::kConflict);
  EXPECT_EQ(runs.status, 409);
  EXPECT_NE(runs.body.find(R"("param":"previous_response_id","code":"conflict")"), std::string::npos) << runs.body;
}

// No model is told them, whether or not they are kept.
TEST(KeptItems, ThoughtsThatAreNotKeptAreLeftOut) {
  const auto request = [](const std::string& ids) {
    return R"({"model":"m","input":[{"role":"user","content":"hi"},)" + ids + "]}";
  };
  const auto reference = [](const std::string& id) { return R"({"type":"item_reference","id":")" + id + R"("})"; };
  const auto thought = [](const std::string& id) {
    return R"({"type":"reasoning","id":")" + id + R"(","summary":[]})";
  };
  const std::string uuid = "0b5dbe0e-9c7d-4f3a-8f2b-6c1d2e3f4a5b";
  auto unknown = ReferringRequest::read(request(reference("rs_1")));
  ASSERT_TRUE(unknown && *unknown);
  EXPECT_TRUE((*unknown)->references().empty());
  EXPECT_EQ((*unknown)->body(), request(thought("rs_1")));
  EXPECT_EQ(ReferringRequest::read(request(reference("msg_1"))).error().code, base::ErrorCode::kNotFound);
  EXPECT_EQ(ReferringRequest::read(request(reference("rs_1") + "," + reference("fc_1"))).error().code,
            base::ErrorCode::kNotFound);
  // Of a response that is not kept, and of one that is and has no such item.
  const std::string kept = kept_text(input_of(R"({"input":"hi"})"), kept_response("completed", "[]"));
  for (const bool is_kept : {false, true}) {
    const auto answered = [&](const std::string& id) {
      auto referring = ReferringRequest::read(request(reference(id)));
      EXPECT_TRUE(referring && *referring);
      const auto& [response_id, references] = *(*referring)->references().begin();
      const auto done =
          is_kept ? (*referring)->insert(response_id, kept, references, 1000) : (*referring)->leave_out(references);
      return done ? (*referring)->body() : "refused";
    };
    EXPECT_EQ(answered("rs_" + uuid + "_0"), request(thought("rs_" + uuid + "_0")));
    EXPECT_EQ(answered("msg_" + uuid + "_7"), "refused");
  }
}

// Its input is nobody's event.
TEST(KeptText, EventsAreReadAsBefore) {
  const std::string events = kept_response("completed", "[]");
  std::string out;
  append_events(kept_text(input_of(R"({"input":"\n\nevent: x\n\n"})"), events), {.comments = false}, out);
  EXPECT_EQ(out, events);
}

// Any bytes are an answer, and none reads past them.
TEST(Form, AnyBytes) {
  const std::string body = form("content");
  base::SeededEntropy entropy(5);
  for (int round = 0; round < 20'000; ++round) {
    std::string changed = body;
    for (int i = 0; i < 3; ++i) changed[entropy.next_u64() % changed.size()] = "\r\n-b;=\": x"[entropy.next_u64() % 10];
    if (const auto parts = parse_form(kType, changed)) {
      EXPECT_LE(parts->size(), kFormPartsMax);
    }
  }
}

TEST(Lines, SayWhatIsWrongWithThem) {
  const auto code_of = [](std::string_view line) {
    const auto parsed = parse_batch_line(line, "/v1/completions");
    return parsed ? "good" : parsed.error().code;
  };
  EXPECT_EQ(code_of(R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"x":1}})"), "good");
  EXPECT_EQ(code_of(R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":[]})"),
            "missing_required_parameter");
  EXPECT_EQ(code_of(R"({"custom_id":5,"method":"POST","url":"/v1/completions","body":{}})"),
            "missing_required_parameter");
  EXPECT_EQ(code_of(R"({"custom_id":"a","url":"/v1/completions","body":{}})"), "invalid_method");
  EXPECT_EQ(code_of(R"({"custom_id":"a","method":"POST","url":"/v1/x","body":{}})"), "mismatched_url");
  for (const char* line : {"", "[]", "{", "{\"custom_id\":\"\xff\"}"}) EXPECT_EQ(code_of(line), "invalid_json_line");
}

TEST(Lines, OfAnAnswerAreFoundAgain) {
  const std::string line = batch_result_line("batch_req_1", "a \"b\"\n", {200, {}, R"({"x":[1]})"}, "r");
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(batch_result_of(line)->custom_id, "a \"b\"\n");
  EXPECT_EQ(batch_result_of(line)->outcome, deferred::BatchOutcome::kCompleted);
  const std::string refused = batch_result_line("batch_req_1", "a", {429, {}, "{}"}, "r");
  EXPECT_EQ(batch_result_of(refused)->outcome, deferred::BatchOutcome::kFailed);
  // What is nested as deep as a request may be, in the tools that a response repeats.
  const std::string tools =
      std::string(tasks::kDocumentNestingMax - 1, '[') + std::string(tasks::kDocumentNestingMax - 1, ']');
  const std::string deep = batch_result_line("batch_req_1", "a", {200, {}, R"({"tools":)" + tools + "}"}, "r");
  ASSERT_TRUE(batch_result_of(deep));
  EXPECT_EQ(batch_result_of(deep)->outcome, deferred::BatchOutcome::kCompleted);
  EXPECT_FALSE(batch_result_of("nothing"));
  EXPECT_FALSE(batch_result_of(R"({"custom_id":"a","result":{"type":"succeeded"}})")) << "of another API";
}

std::string event(int number, std::string_view more = "") {
  return "event: response.x\ndata: {\"type\":\"response.x\",\"sequence_number\":" + std::to_string(number) +
         std::string(more) + "}\n\n";
}

TEST(Events, AreCutBehindTheOneAClientHas) {
  const std::string text = ": waits\n\n" + event(0) + event(1, ",\"sequence_number\":9") + ": more\n\n" + event(2);
  const auto cut = [&](const EventFilter& filter) {
    std::string out;
    append_events(text, filter, out);
    return out;
  };
  EXPECT_EQ(cut({}), text);
  EXPECT_EQ(cut({.comments = false}), event(0) + event(1, ",\"sequence_number\":9") + event(2));
  EXPECT_EQ(cut({.after = 0, .comments = false}), event(1, ",\"sequence_number\":9") + event(2));
  EXPECT_EQ(cut({.after = 2, .comments = false}), "");
}

// A reader that has to leave a response that goes on must not read that it failed; one whose response fails must.
TEST(Events, WhatIsWrongWithOneReaderIsNoEventOfTheResponse) {
  const auto inner = std::make_shared<ResponseRenderer>(
      AnswerOptions{.endpoint = Endpoint::kResponses, .model = "m", .stream = true, .kept = true},
      AnswerIdentity{.job_id = base::JobId("j"), .correlation_id = base::CorrelationId("c"), .created_unix_s = 1});
  ResumedRenderer renderer(inner, std::nullopt);
  const wire::ErrorBody error = wire::error_body({base::ErrorCode::kConflict, "too many read it", {}}, {});
  std::string out;
  renderer.started({.job_id = "j", .seed = 7}, {}, out);
  ASSERT_TRUE(out.starts_with("event: response.created\n")) << out;
  out.clear();
  renderer.error(error, std::nullopt, out);
  EXPECT_EQ(out, "");
  renderer.error(error, streams::EventId{}, out);
  EXPECT_TRUE(out.starts_with("event: response.failed\n")) << out;
}

// The events that a response leaves for its end are cut as well.
TEST(Events, AReaderThatComesBackGetsTheLastOnesThatItLacks) {
  const auto read = [](std::optional<std::int64_t> after) {
    const auto inner = std::make_shared<ResponseRenderer>(
        AnswerOptions{.endpoint = Endpoint::kResponses, .model = "m", .stream = true, .kept = true},
        AnswerIdentity{.job_id = base::JobId("j"), .correlation_id = base::CorrelationId("c"), .created_unix_s = 1});
    ResumedRenderer renderer(inner, after);
    std::string out;
    renderer.started({.job_id = "j", .seed = 7}, {}, out);
    renderer.token({.t = "Hi"}, {}, out);
    renderer.end({.job_id = "j"}, {}, out);
    while (renderer.more(out)) continue;
    return out;
  };
  const std::string all = read(std::nullopt);
  const std::string last = read(7);
  EXPECT_TRUE(last.starts_with("event: response.completed\n")) << last;
  EXPECT_TRUE(all.ends_with(last));
  EXPECT_EQ(read(8), "");
}

TEST(Events, TheLastOneHoldsTheResponse) {
  const std::string text = event(0, ",\"response\":{\"a\":1}") + event(1, ",\"response\":{\"b\":{\"response\":2}}");
  EXPECT_EQ(last_response(text).value(), R"({"b":{"response":2}})");
  EXPECT_FALSE(last_response(text.substr(0, text.size() - 1)));
  EXPECT_FALSE(last_response(event(0)));
  EXPECT_FALSE(last_response(""));
}

TEST(Facts, OfACallerComeBack) {
  const net::http::Principal caller{net::http::Role::kTenant, "lab", "token:abc", "lab"};
  boost::json::object object{{"caller", to_json(caller)}};
  EXPECT_EQ(caller_from(object.if_contains("caller")), caller);
  EXPECT_EQ(caller_from(nullptr), std::nullopt);
  object["caller"] = boost::json::object{{"role", "god"}};
  EXPECT_EQ(caller_from(object.if_contains("caller")), std::nullopt);
}

}  // namespace
}  // namespace llorch::orchestratord::http::openai
