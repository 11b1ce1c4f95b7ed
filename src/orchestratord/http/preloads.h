#pragma once
// Models that are to have a worker before the service calls itself ready.
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "orchestratord/http/context.h"
#include "orchestratord/http/tasks/submit.h"
#include "wire/meta.h"

namespace llorch::orchestratord::http {

// A preload is a job of one token: what it needs is what every job needs, a worker that has loaded the model, proved itself and
// answers. Thread-safe. REQUIRES: `context` and `submitter` outlive it.
class Preloads {
 public:
  Preloads(const Context& context, tasks::Submitter& submitter) : context_(context), submitter_(submitter) {}

  // Begins with models.preload. What fails is tried again, later each time, until it succeeds: memory may become free, and a
  // model may be fetched or repaired meanwhile.
  void begin();
  // In the order of the configuration.
  std::vector<wire::PreloadStatus> status() const;

 private:
  void attempt(std::size_t index);
  void submit(std::size_t index, wire::Workload workload);
  void ended(std::size_t index, const std::optional<base::Error>& error);

  const Context& context_;
  tasks::Submitter& submitter_;
  mutable std::mutex mutex_;
  std::vector<wire::PreloadStatus> preloads_;
};

}  // namespace llorch::orchestratord::http
