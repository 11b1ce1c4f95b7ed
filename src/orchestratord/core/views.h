#pragma once
// Answers to questions: copies of the state.

#include "orchestratord/core/queue/job_groups.h"

namespace llorch::orchestratord::core {

class Views : Handler {
 public:
  using Handler::Handler;

  void on(QueryJob& e);
  void on(QueryJobs& e);
  void on(QueryPools& e);
  void on(QueryGauges& e);
  std::optional<std::int64_t> predicted_start(const Job& job) const;
  // `of_group`: what the last pass, or a decision not acted on, says of the first job of its group.
  wire::WaitReason wait_reason(const Job& job, const std::optional<placement::Wait>& of_group) const;

 private:
  // Jobs that go before one: of all, of its model, of its group. Those that wait for a retry count for the first alone.
  struct Ahead {
    std::int64_t of_all = 0, of_model = 0, in_group = 0;
  };
  Ahead ahead_of(const Job& job) const;
  LiveJob live_job(const Job& job, const Ahead& ahead) const;
  std::optional<std::int64_t> predicted_start(const Job& job, std::int64_t ahead) const;
  std::optional<std::int64_t> start_within_quota(const Job& job, std::int64_t ahead) const;
  std::optional<std::int64_t> foreseen_start(const Job& job, const Ahead& ahead) const;
  wire::WaitReason wait_reason(const Job& job, const std::optional<placement::Wait>& of_group,
                               std::int64_t ahead) const;
  std::string no_room(const wire::ModelFacts& facts, std::string_view where, std::int64_t free_bytes_max) const;
  std::optional<std::int64_t> load_percent_for(const JobGroup& l) const;
  std::string wait_for_pool(const JobGroup& l, std::string_view where) const;
};

}  // namespace llorch::orchestratord::core
