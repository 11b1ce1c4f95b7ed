#pragma once
// A job as one answer when it has ended: a wire::TaskResult, or the error it ended with. Pure.
#include <string>

#include "orchestratord/streams/renderer.h"

namespace llorch::orchestratord::http::tasks {

class ResultRenderer final : public streams::WholeRenderer {
 public:
  // `job_id`, `task_id`: as the client knows them, whatever the job is called that ran once more for it. An embedding job's tokens
  // are vectors, those of reranking scores.
  ResultRenderer(std::string job_id, std::string task_id, wire::Workload workload) {
    result_.job_id = std::move(job_id);
    result_.task_id = std::move(task_id);
    if (workload == wire::Workload::kEmbedding) result_.embeddings.emplace();
    if (workload == wire::Workload::kRerank) result_.scores.emplace();
  }

  void token(const streams::TokenView& token, const streams::EventId& id, std::string& out) override;
  void end(const wire::EndEvent& event, const streams::EventId& id, std::string& out) override;
  void error(const wire::ErrorBody& error, const std::optional<streams::EventId>& id, std::string& out) override;

 private:
  wire::TaskResult result_;
};

}  // namespace llorch::orchestratord::http::tasks
