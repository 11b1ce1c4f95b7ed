#pragma once
// A job as one answer when it has ended: a wire::TaskResult, or the error it ended with. Pure.
#include <string>

#include "orchestratord/streams/renderer.h"

namespace llorch::orchestratord::http::tasks {

class ResultRenderer final : public streams::Renderer {
 public:
  // `task_id`: as the client knows it. An embedding job's tokens are vectors, those of reranking
  // scores.
  ResultRenderer(std::string job_id, std::string task_id, wire::Workload workload) {
    result_.job_id = std::move(job_id);
    result_.task_id = std::move(task_id);
    if (workload == wire::Workload::kEmbedding) result_.embeddings.emplace();
    if (workload == wire::Workload::kRerank) result_.scores.emplace();
  }

  bool streams() const override { return false; }
  Head head() const override { return head_; }

  void queued(const wire::QueuedEvent&, const streams::EventId&, std::string&) override {}
  void started(const wire::StartedEvent&, const streams::EventId&, std::string&) override {}
  void token(const streams::TokenView& token, const streams::EventId& id, std::string& out) override;
  void metrics(const wire::MetricsEvent&, std::string&) override {}
  void end(const wire::EndEvent& event, const streams::EventId& id, std::string& out) override;
  void error(const wire::ErrorBody& error, const std::optional<streams::EventId>& id, std::string& out) override;
  void keep_alive(std::string&) override {}

 private:
  Head head_;
  wire::TaskResult result_;
};

}  // namespace llorch::orchestratord::http::tasks
