#include "orchestratord/traces/job_spans.h"

#include <fmt/core.h>

#include <algorithm>

#include "wire/json.h"

namespace llorch::orchestratord::traces {
namespace {

std::string new_id(base::Entropy& entropy) {
  std::uint64_t id = entropy.next_u64();
  while (id == 0) id = entropy.next_u64();  // zero is no id
  return fmt::format("{:016x}", id);
}

// A reference to a file tells where somebody keeps it; its name is enough.
std::string name_of(const std::string& model) {
  return model.starts_with("file:") ? model.substr(model.rfind('/') + 1) : model;
}

std::vector<Attribute> attributes_of(const FinishedJob& job) {
  std::vector<Attribute> out{{"gen_ai.operation.name", std::string("text_completion")},
                             {"gen_ai.request.model", name_of(job.model)},
                             {"gen_ai.usage.input_tokens", job.tokens_in},
                             {"gen_ai.usage.output_tokens", job.tokens_out},
                             {"llorch.model_digest", job.model_digest},
                             {"llorch.priority", std::string(wire::enum_name(job.priority))},
                             {"llorch.status", std::string(wire::enum_name(job.status))},
                             {"llorch.attempts", job.attempts}};
  if (!job.pool_id.empty()) out.emplace_back("llorch.pool_id", job.pool_id);
  if (!job.error_code.empty()) out.emplace_back("error.type", job.error_code);
  if (!job.end) return out;
  out.emplace_back("llorch.stop_reason", std::string(wire::enum_name(job.end->stop_reason)));
  if (job.end->receipt) {
    out.emplace_back("llorch.engine_build", job.end->receipt->engine_build);
    out.emplace_back("llorch.device_class", job.end->receipt->device_class);
  }
  return out;
}

}  // namespace

bool is_sampled(const FinishedJob& job) { return !job.correlation_id.trace || job.correlation_id.trace->is_sampled; }

std::vector<Span> job_spans(const FinishedJob& job, base::Entropy& entropy) {
  const auto& trace = job.correlation_id.trace;
  const std::string trace_id = trace ? trace->trace_id : new_id(entropy) + new_id(entropy);
  std::vector<Span> out;
  // Clocks of several machines had a part in these times: none goes back behind the one before it.
  std::int64_t at = job.submitted_ms;
  const std::int64_t end = std::max(job.finished_ms, job.submitted_ms);
  out.push_back({.trace_id = trace_id,
                 .span_id = new_id(entropy),
                 .parent_id = trace ? trace->parent_id : "",
                 .name = "job",
                 .is_server = true,
                 .is_error = job.status == wire::JobStatus::kFailed,
                 .begin_ms = at,
                 .end_ms = end,
                 .attributes = attributes_of(job)});
  const std::string job_id = out.front().span_id;
  const auto until = [&](std::string_view name, std::int64_t time) {
    time = std::clamp(time, at, end);
    out.push_back({.trace_id = trace_id,
                   .span_id = new_id(entropy),
                   .parent_id = job_id,
                   .name = name,
                   .begin_ms = std::exchange(at, time),
                   .end_ms = time});
  };
  until("queue", job.dispatched_ms.value_or(end));
  if (!job.dispatched_ms) return out;
  until("dispatch", job.started_ms.value_or(end));
  if (!job.started_ms) return out;
  if (job.end) until("prefill", *job.started_ms + job.end->first_token_ms);
  until("decode", end);
  return out;
}

}  // namespace llorch::orchestratord::traces
