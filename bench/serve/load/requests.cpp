#include "bench/serve/load/requests.h"

#include <fmt/format.h>

#include <cstdio>
#include <iterator>

#include "bench/serve/io/sockets.h"

namespace llorch::bench {
namespace {

void append_post(std::string& out, std::string_view target, std::string_view body) {
  fmt::format_to(
      std::back_inserter(out),
      "POST {} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}", target,
      body.size(), body);
}

}  // namespace

void append_submission(std::string& out, const Submission& submission) {
  append_post(
      out, "/v2/tasks",
      fmt::format(
          R"({{"model":"file:/models/relay-bench.gguf","prompt":"Once upon a time","max_tokens":{},"seed":{}}})",
          submission.tokens, submission.seed));
}

void append_waiting_submission(std::string& out, const Submission& submission, Api api) {
  append_post(
      out, api == Api::kV2 ? "/v2/tasks?wait=true" : "/v1/completions",
      fmt::format(
          R"({{"model":"file:/models/relay-bench.gguf","prompt":"Once upon a time","max_tokens":{},"seed":{}}})",
          submission.tokens, submission.seed));
}

void append_execute(std::string& out, const Submission& submission) {
  append_post(out, "/execute",
              fmt::format(R"({{"job_id":"direct-{1}","prompt_tokens":[1],"max_tokens":{0},"seed":{1}}})",
                          submission.tokens, submission.seed));
}

void append_get(std::string& out, std::string_view target) {
  fmt::format_to(std::back_inserter(out), "GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n",
                 target);
}

std::string events_url_of(std::string_view json) {
  constexpr std::string_view kKey = "\"events_url\":\"";
  const std::size_t at = json.find(kKey);
  if (at == std::string_view::npos) fail(fmt::format("no events_url in {}", json));
  const std::size_t begin = at + kKey.size();
  return std::string(json.substr(begin, json.find('"', begin) - begin));
}

void announce(std::string_view event) {
  fmt::print("{{\"event\":\"{}\"}}\n", event);
  std::fflush(stdout);
}

}  // namespace llorch::bench
