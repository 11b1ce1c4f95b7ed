#pragma once
// One job on its way through an engine. Every member runs on the client's thread.
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "adapter/jobs/service.h"
#include "adapter/output/token_writer.h"
#include "adapter/upstream/grpc.h"
#include "net/sse/sse.h"

namespace llorch::adapter::jobs {

class Job : public std::enable_shared_from_this<Job> {
 public:
  struct Order {
    std::uint64_t number = 0;
    wire::ExecuteRequest request;
    engines::Submission submission;
    std::uint64_t seed = 0;
    std::string prompt_sha256;
    base::CorrelationId correlation_id;
    net::ExchangePtr exchange;
  };
  Job(Service& service, Order order);

  const std::string& job_id() const { return order_.request.job_id; }
  const std::optional<std::string>& execution_id() const { return order_.request.execution_id; }

  void begin();
  // With CANCELLED, SHUTTING_DOWN or TIMEOUT. Nothing happens if it has ended.
  void stop(base::Error error);

 private:
  void ask();
  bool may_send();
  // Once the reader has taken most of what is queued, unless the job ends before.
  void when_read(void (Job::*then)());
  void resume();
  void on_head(const upstream::Head& head);
  bool on_data(std::string_view bytes);
  base::Result<> decode(std::string_view bytes, const std::function<void(std::string_view)>& take);
  bool pass_over(std::string_view bytes);
  void on_end(const base::Result<>& result);
  bool is_whole() const;
  std::vector<wire::TokenLogprobs> wanted_logprobs(const engines::Piece& piece) const;
  void take(const engines::Piece& piece);
  // The engine answered with another status than 200.
  void refused();
  // It ended its answer with this status of gRPC, which is not OK.
  void refused_by_grpc(int code);
  // An attempt is over: again, if nothing has been told yet and it may help, else the end.
  void attempt_failed(base::Error error, bool may_help);
  // The answer is whole: what is left of it goes out as fast as it is read, and then the end.
  void complete();
  void write_rest();
  void write_end();
  void fail(base::Error error);
  void flush();
  void finish(Service::Outcome outcome);

  Service& service_;
  const bool grpc_;
  Order order_;
  output::TokenWriter writer_;
  std::string events_;  // of one read, on their way
  std::optional<upstream::TimerId> timeout_;
  std::optional<upstream::TransferId> transfer_;
  std::optional<upstream::TransferId> tail_;  // of an answer whose end was read
  std::size_t tail_bytes_ = 0;
  upstream::Head head_;
  std::string refusal_;
  std::optional<base::Error> kept_back_;  // why nothing was sent
  net::sse::Decoder decoder_;             // of an answer of server-sent events,
  upstream::FrameReader frames_;          // or of gRPC messages
  std::optional<int> grpc_status_;
  std::int64_t begun_ms_ = 0;
  std::optional<std::int64_t> first_token_ms_;
  std::optional<wire::StopReason> stop_reason_;
  std::optional<std::int64_t> tokens_in_, tokens_counted_;
  int attempt_ = 0;
  bool paused_ = false;
  bool last_seen_ = false;
  bool whole_ = false;  // nothing is read of the engine any more
  bool ended_ = false;
};

}  // namespace llorch::adapter::jobs
