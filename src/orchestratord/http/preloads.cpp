#include "orchestratord/http/preloads.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "net/http/error_response.h"
#include "orchestratord/http/tasks/deferred_job.h"
#include "wire/json.h"

namespace llorch::orchestratord::http {
namespace {

using base::Error;

constexpr std::int64_t kFirstDelayMs = 1000;
constexpr std::int64_t kDelayMaxMs = 60'000;
constexpr std::string_view kText = "Hello";

// How the job ended, as an answer.
class EndRenderer final : public streams::WholeRenderer {
 public:
  void token(const streams::TokenView&, const streams::EventId&, std::string&) override {}
  void end(const wire::EndEvent&, const streams::EventId&, std::string&) override {}
  void error(const wire::ErrorBody& error, const std::optional<streams::EventId>&, std::string& out) override {
    answer({.status = 500, .headers = {}, .body = wire::encode(error)}, out);
  }
};

wire::SubmitRequest request_for(const std::string& model, wire::Workload workload, base::Entropy& entropy) {
  wire::SubmitRequest out;
  out.model = model;
  out.task_id = base::uuid_v4(entropy);
  if (workload == wire::Workload::kCompletion) {
    out.prompt = {.text = std::string(kText)};
    out.max_tokens = 1;
    return out;
  }
  out.workload = workload;
  out.input = wire::EmbeddingInputs{{{.text = std::string(kText), .tokens = {}}}};
  if (workload == wire::Workload::kRerank) out.query = std::string(kText);
  return out;
}

std::optional<Error> error_of(const base::Result<net::Response>& answer) {
  if (!answer) return answer.error();
  if (answer->status < 400) return std::nullopt;
  const auto body = wire::decode<wire::ErrorBody>(answer->body);
  return body ? wire::to_error(*body) : body.error();
}

}  // namespace

void Preloads::begin() {
  {
    const std::lock_guard lock(mutex_);
    for (const std::string& model : context_.config->models.preload) preloads_.push_back({.model = model});
  }
  for (std::size_t i = 0; i < preloads_.size(); ++i) {
    context_.request_executor->post([this, i] { attempt(i); });
  }
}

std::vector<wire::PreloadStatus> Preloads::status() const {
  const std::lock_guard lock(mutex_);
  return preloads_;
}

void Preloads::attempt(std::size_t index) {
  if (*context_.stopping) return;
  std::string model;
  {
    const std::lock_guard lock(mutex_);
    wire::PreloadStatus& preload = preloads_[index];
    ++preload.attempts;
    preload.state = wire::PreloadState::kLoading;
    model = preload.model;
  }
  tasks::find_model(context_, model, tasks::Naming::kLook, {}, [this, index](base::Result<tasks::FoundModel> found) {
    context_.request_executor->post([this, index, found = std::move(found)] {
      if (!found) return ended(index, found.error());
      submit(index, models::workload_of(found->model.facts));
    });
  });
}

void Preloads::submit(std::size_t index, wire::Workload workload) {
  const std::string model = status()[index].model;
  const auto job = std::make_shared<tasks::DeferredJob>();
  job->submission = {.request = request_for(model, workload, *context_.entropy),
                     .caller = net::http::local_operator(),
                     .correlation_id = base::CorrelationId(base::uuid_v4(*context_.entropy))};
  job->make_renderer = [](const wire::SubmitReply&, const std::shared_ptr<const chat::Reading>&) {
    return std::make_shared<EndRenderer>();
  };
  tasks::run_deferred(
      context_, submitter_, job,
      {.admitted = [](const wire::SubmitReply&, const tasks::Admission&) {},
       .done =
           [this, index](const base::Result<net::Response>& answer) {
             context_.request_executor->post([this, index, error = error_of(answer)] { ended(index, error); });
           }});
}

void Preloads::ended(std::size_t index, const std::optional<Error>& error) {
  context_.metrics->preload(!error.has_value());
  std::int64_t delay_ms = 0;
  std::string model;
  {
    const std::lock_guard lock(mutex_);
    wire::PreloadStatus& preload = preloads_[index];
    model = preload.model;
    preload.state = error ? wire::PreloadState::kWaiting : wire::PreloadState::kReady;
    preload.error_code.reset();
    preload.error_message.reset();
    if (error) {
      preload.error_code = std::string(error->name());
      preload.error_message = error->message;
      delay_ms = std::min(kFirstDelayMs << std::min<std::int64_t>(preload.attempts - 1, 16), kDelayMaxMs);
    }
  }
  if (!error) {
    return base::log_event(base::LogLevel::kInfo, "preload_ready", {}, "A model of models.preload has a worker.",
                           {{"model", model}});
  }
  base::log_event(base::LogLevel::kWarn, "preload_failed", {}, error->message,
                  {{"model", model}, {"error_code", error->name()}, {"retry_after_ms", delay_ms}});
  context_.request_executor->post_after(delay_ms, [this, index] { attempt(index); });
}

}  // namespace llorch::orchestratord::http
