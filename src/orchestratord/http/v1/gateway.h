#pragma once
// The tasks and sessions of the router under /v1, where they answer in another form than those of /v2.
#include "orchestratord/http/context.h"
#include "orchestratord/http/tasks/submit.h"
#include "orchestratord/http/tasks/tasks.h"

namespace llorch::orchestratord::http::v1 {

// Thread-safe. REQUIRES: what it is made of outlives it.
class Gateway {
 public:
  Gateway(const Context& context, tasks::Submitter& submitter, tasks::Tasks& tasks)
      : context_(context), submitter_(submitter), tasks_(tasks) {}

  // 202 with the place in the queue. REQUIRES: on the request executor's thread; so does preview().
  void submit(const net::Request& request, const net::ExchangePtr& exchange);
  void preview(const net::Request& request, const net::ExchangePtr& exchange);
  // The stream of the task with this task_id: started, tokens, end or error.
  void stream(const net::Request& request, const net::ExchangePtr& exchange);
  // 204, also of a task that has ended.
  void cancel(const net::Request& request, const net::ExchangePtr& exchange);
  void remove_session(const net::Request& request, const net::ExchangePtr& exchange);

 private:
  // `then` with the job of the task that the path names, or the refusal.
  void find_job(const net::Request& request, const net::ExchangePtr& exchange,
                std::function<void(const base::JobId& job_id)> then);

  const Context& context_;
  tasks::Submitter& submitter_;
  tasks::Tasks& tasks_;
};

}  // namespace llorch::orchestratord::http::v1
