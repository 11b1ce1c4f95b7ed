#pragma once
// Whether a receipt and a run of its request agree. Pure: no daemon, no file.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "wire/pool.h"
#include "wire/task.h"

namespace llorch::cli::verify {

// A receipt as somebody hands it in, with what came along.
struct Claim {
  wire::Receipt receipt;
  std::optional<wire::StopReason> stop_reason;
  std::optional<std::string> model;  // as the client wrote it
};

// The receipt itself, the event `end`, a job, or what `llorch --json run` prints. Trusts nothing: afterwards every text
// of the receipt is short and printable, every hash is one. INVALID_PARAMS says what is wrong and quotes nothing.
base::Result<Claim> parse_claim(std::string_view json);

enum class Verdict {
  kMatch,
  kOutputDiffers,  // the same request, comparable, other bytes
  kInputsDiffer,   // not the request of the receipt
  kNotComparable,  // another build, device or version: nothing is promised between them
};
std::string_view name(Verdict verdict);
int exit_code_of(Verdict verdict);  // 0, 1, 2, 4

struct Difference {
  std::string field;
  std::string claimed;
  std::string found;
};
struct Finding {
  Verdict verdict = Verdict::kMatch;
  std::string explanation;
  std::vector<Difference> differences;
};

// Before anything runs: the parameters, and the prompt when the request has it as text or ids.
Finding compare_request(const Claim& claim, const wire::SubmitRequest& request);
// What a worker would sign with.
Finding compare_worker(const Claim& claim, const wire::WorkerInfo& worker);
// After the run. Inputs first, then what makes results comparable, then the output.
Finding compare_result(const Claim& claim, const wire::EndEvent& end);

}  // namespace llorch::cli::verify
