// llorch verify JOB|FILE: runs the request of a receipt again and compares.
#include <fmt/core.h>

#include <boost/json.hpp>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "base/file.h"
#include "base/id.h"
#include "base/process.h"
#include "cli/commands.h"
#include "cli/stream/run_job.h"
#include "cli/terminal_text.h"
#include "cli/verify/receipt_check.h"
#include "wire/catalog.h"
#include "wire/json.h"
#include "wire/pool.h"

namespace llorch::cli {
namespace {

namespace bj = boost::json;
using base::ErrorCode;
using verify::Claim;
using verify::Finding;
using verify::Verdict;

constexpr std::size_t kReceiptBytesMax = 1 << 20;
constexpr std::size_t kPromptBytesMax = 64 << 20;

base::Result<std::string> standard_input(std::size_t bytes_max) {
  std::string text;
  for (std::istreambuf_iterator<char> at(std::cin), end; at != end; ++at) {
    if (text.size() == bytes_max) {
      return base::fail(ErrorCode::kInvalidParams, fmt::format("standard input has more than {} bytes", bytes_max));
    }
    text.push_back(*at);
  }
  return text;
}

base::Result<std::string> text_of(const std::string& path, std::size_t bytes_max) {
  return path == "-" ? standard_input(bytes_max) : base::read_file(path, bytes_max);
}

// What is read before anything is asked of the stack.
struct Inputs {
  std::optional<Claim> claim;  // absent: options.receipt is a job's id
  wire::SubmitRequest request;
};

// As it was sent. Whatever named the old job or limited it does not belong to the new one.
base::Result<wire::SubmitRequest> read_request(const std::string& path) {
  auto request =
      TRY(wire::decode<wire::SubmitRequest>(TRY(text_of(path, kPromptBytesMax)), wire::UnknownKeys::kRefuse));
  request.task_id.reset();
  request.session_id.reset();
  request.timeout_ms.reset();
  request.deadline_ms.reset();
  request.model_ref.reset();
  request.on_disconnect = wire::OnDisconnect::kResume;
  return request;
}

// A file that exists is meant as one; everything else is a job's id.
base::Result<Inputs> read_inputs(const VerifyOptions& options) {
  Inputs inputs;
  RunOptions run = options.run;
  if (!options.prompt_file.empty()) run.prompt = TRY(text_of(options.prompt_file, kPromptBytesMax));
  const bool prompt_from_input = options.prompt_file == "-" || options.request_file == "-" ||
                                 (!run.prompt && run.messages.empty() && options.request_file.empty());
  if (options.receipt == "-" && prompt_from_input) {
    return base::fail(
        ErrorCode::kInvalidParams,
        "standard input is the receipt; give the prompt with --prompt, --prompt-file, --messages or --request");
  }
  std::error_code ec;
  if (options.receipt == "-" || std::filesystem::exists(options.receipt, ec)) {
    inputs.claim = TRY(verify::parse_claim(TRY(text_of(options.receipt, kReceiptBytesMax))));
  } else if (!base::is_valid_identifier(options.receipt)) {
    return base::fail(ErrorCode::kInvalidParams, "the receipt is no file that exists, and no job id");
  }
  inputs.request =
      options.request_file.empty() ? TRY(stream::make_request(run)) : TRY(read_request(options.request_file));
  return inputs;
}

struct Stack {
  std::vector<wire::CatalogModel> models;
  std::vector<wire::WorkerInfo> workers;  // that take jobs
};

base::Result<Stack> look_at_stack(Api& api) {
  Stack stack;
  stack.models = TRY(wire::decode<wire::CatalogModelList>(TRY(api.call("GET", "/v2/catalog/models")))).models;
  const auto pools = TRY(wire::decode<wire::PoolList>(TRY(api.call("GET", "/v2/pools"))));
  for (const wire::PoolInfo& pool : pools.pools) {
    for (const wire::WorkerInfo& worker : pool.workers) {
      using wire::WorkerStatus;
      if (worker.status == WorkerStatus::kReady || worker.status == WorkerStatus::kBusy)
        stack.workers.push_back(worker);
    }
  }
  return stack;
}

// What to run: as asked, as the job said, or what is being served with the receipt's digest.
base::Result<std::string> model_name(const std::string& asked, const Claim& claim, const Stack& stack) {
  if (!asked.empty()) return stream::model_reference(asked);
  if (claim.model) return *claim.model;
  for (const wire::WorkerInfo& worker : stack.workers) {
    if (worker.model_digest != claim.receipt.model_digest) continue;
    for (const wire::CatalogModel& model : stack.models) {
      if (model.model_ref == worker.model_ref) return model.model_id;
    }
    return worker.model_ref;
  }
  return base::fail(base::Error{
      ErrorCode::kInvalidParams,
      "the receipt does not name its model, and no worker serves one with its digest; name it "
      "with --model",
      {}}.with("model_digest", claim.receipt.model_digest));
}

// What is known of the workers that would run it; a match when there is none yet, or one that can be compared.
Finding compare_workers(const std::string& model, const Claim& claim, const Stack& stack) {
  std::string ref = model;
  for (const wire::CatalogModel& known : stack.models) {
    if (known.model_id == model) ref = known.model_ref;
  }
  Finding best;
  bool any = false;
  for (const wire::WorkerInfo& worker : stack.workers) {
    if (worker.model_ref != ref) continue;
    Finding finding = verify::compare_worker(claim, worker);
    if (!any || finding.differences.size() < best.differences.size()) best = std::move(finding);
    any = true;
  }
  return best;
}

void print_finding(const Finding& finding, const Claim& claim, const std::optional<stream::FinishedJob>& job) {
  if (finding.verdict == Verdict::kMatch) {
    print_text("match: {} tokens, the same bytes\n  job            {}\n  output_sha256  {}\n  engine_build   {}\n",
               claim.receipt.tokens_out, job->job_id, claim.receipt.output_sha256, claim.receipt.engine_build);
    return;
  }
  print_text("{}: {}\n", verify::name(finding.verdict), finding.explanation);
  for (const verify::Difference& d : finding.differences) {
    print_text("  {}\n    receipt  {}\n    here     {}\n", d.field, d.claimed, d.found);
  }
}

void print_finding_json(const Finding& finding, const Claim& claim, const std::optional<stream::FinishedJob>& job) {
  bj::array differences;
  for (const verify::Difference& d : finding.differences) {
    differences.push_back(bj::object{{"field", d.field}, {"receipt", d.claimed}, {"here", d.found}});
  }
  bj::object out{{"verdict", verify::name(finding.verdict)},
                 {"explanation", finding.explanation},
                 {"differences", std::move(differences)},
                 {"receipt", bj::parse(wire::encode(claim.receipt))}};
  if (job) {
    out["job_id"] = job->job_id;
    if (job->outcome.end->receipt) out["here"] = bj::parse(wire::encode(*job->outcome.end->receipt));
  }
  fmt::print("{}\n", bj::serialize(out));
}

struct Checked {
  Finding finding;
  Claim claim;
  std::optional<stream::FinishedJob> job;  // absent: it was clear without running
};

base::Result<Checked> check(Api& api, const VerifyOptions& options, Inputs inputs, bool json,
                            stream::InterruptWatch& interrupt, stream::WaitDisplay& display) {
  Checked out;
  out.claim = inputs.claim ? std::move(*inputs.claim)
                           : TRY(verify::parse_claim(
                                 TRY(api.call("GET", "/v2/tasks/" + TRY(whole_job_id(api, options.receipt, json))))));
  if (out.claim.receipt.partial.value_or(false)) {
    return base::fail(
        ErrorCode::kInvalidParams,
        "the receipt is partial: another system's engine made the output, and a second run of it may differ");
  }
  wire::SubmitRequest& request = inputs.request;
  request.seed = out.claim.receipt.seed;
  // As long as the original and no longer: whatever ended it there ends it here.
  request.max_tokens = out.claim.receipt.tokens_out;
  out.finding = verify::compare_request(out.claim, request);
  if (out.finding.verdict != Verdict::kMatch) return out;
  const Stack stack = TRY(look_at_stack(api));
  request.model = TRY(model_name(options.run.model, out.claim, stack));
  out.finding = compare_workers(*request.model, out.claim, stack);
  if (out.finding.verdict != Verdict::kMatch) return out;
  out.job = TRY(stream::run_job(
      api, request, interrupt, [](std::string_view) { return true; }, &display));
  out.finding = verify::compare_result(out.claim, *out.job->outcome.end);
  return out;
}

}  // namespace

int verify_receipt(const GlobalOptions& global, const VerifyOptions& options) {
  auto inputs = read_inputs(options);
  if (!inputs) return report(inputs.error(), global.json);
  // From here on there may be a job to cancel; until now Ctrl-C ended the process.
  base::block_stop_signals();
  stream::InterruptWatch interrupt;
  auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  stream::WaitDisplay display(stream::WaitDisplay::form(global.json), [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  });
  const auto checked = check(**api, options, std::move(*inputs), global.json, interrupt, display);
  if (!checked) return report(checked.error(), global.json);
  (global.json ? print_finding_json : print_finding)(checked->finding, checked->claim, checked->job);
  return verify::exit_code_of(checked->finding.verdict);
}

}  // namespace llorch::cli
