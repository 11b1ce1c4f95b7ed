#include "cli/verify/receipt_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/sha256.h"
#include "wire/json.h"

namespace llorch::cli::verify {
namespace {

namespace bj = boost::json;
using base::ErrorCode;
using wire::Receipt;

constexpr std::size_t kTextBytesMax = 256;
constexpr std::int64_t kTokensMax = 1'000'000;  // what a request may ask for

tl::unexpected<base::Error> invalid(std::string message) {
  return base::fail(ErrorCode::kInvalidParams, "this is no receipt: " + std::move(message));
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// It is going to be printed on somebody's terminal.
bool is_short_and_printable(std::string_view text) {
  return !text.empty() && text.size() <= kTextBytesMax &&
         std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7f; });
}

base::Result<> check(const Receipt& r) {
  if (!r.model_digest.starts_with("sha256:") || !is_sha256(std::string_view(r.model_digest).substr(7))) {
    return invalid("model_digest is not sha256: and 64 hex digits");
  }
  const std::pair<std::string_view, const std::string*> hashes[] = {
      {"prompt_sha256", &r.prompt_sha256},
      {"output_sha256", &r.output_sha256},
      {"parameters_sha256", r.parameters_sha256 ? &*r.parameters_sha256 : nullptr}};
  for (const auto& [field, hash] : hashes) {
    if (hash != nullptr && !is_sha256(*hash)) return invalid(fmt::format("{} is not 64 hex digits", field));
  }
  const std::pair<std::string_view, const std::string*> texts[] = {{"engine_build", &r.engine_build},
                                                                   {"numerics", &r.numerics},
                                                                   {"device_class", &r.device_class},
                                                                   {"sampler", &r.sampler},
                                                                   {"kv_dtype", &r.kv_dtype}};
  for (const auto& [field, text] : texts) {
    if (!is_short_and_printable(*text)) {
      return invalid(fmt::format("{} is not 1 to {} printable characters", field, kTextBytesMax));
    }
  }
  if (r.speculation && !is_short_and_printable(*r.speculation)) {
    return invalid(fmt::format("speculation is not 1 to {} printable characters", kTextBytesMax));
  }
  if (r.tokens_out < 1 || r.tokens_out > kTokensMax) {
    return invalid(fmt::format("tokens_out is not between 1 and {}", kTokensMax));
  }
  return {};
}

const bj::object* object_at(const bj::object& parent, std::string_view key) {
  const bj::value* value = parent.if_contains(key);
  return value == nullptr ? nullptr : value->if_object();
}

std::optional<std::string> text_at(const bj::object& parent, std::string_view key) {
  const bj::value* value = parent.if_contains(key);
  if (value == nullptr || !value->is_string()) return std::nullopt;
  std::string text(value->get_string());
  return is_short_and_printable(text) ? std::optional(std::move(text)) : std::nullopt;
}

class Differences {
 public:
  explicit Differences(Finding& finding) : finding_(finding) {}
  void add(std::string field, std::string claimed, std::string found) {
    if (claimed != found) finding_.differences.push_back({std::move(field), std::move(claimed), std::move(found)});
  }

 private:
  Finding& finding_;
};

Finding decide(Finding finding, Verdict otherwise, std::string explanation) {
  if (finding.differences.empty()) return finding;
  finding.verdict = otherwise;
  finding.explanation = std::move(explanation);
  return finding;
}

Finding compare_model(const Claim& claim, const std::string& digest) {
  Finding finding;
  Differences(finding).add("model_digest", claim.receipt.model_digest, digest);
  return decide(std::move(finding), Verdict::kInputsDiffer, "this is another model than the receipt's");
}

// Promise 1 holds within one of these; T is a Receipt or a WorkerInfo.
template <class T>
Finding compare_environment(const Claim& claim, const T& now) {
  Finding finding;
  Differences differences(finding);
  differences.add("engine_build", claim.receipt.engine_build, now.engine_build);
  differences.add("numerics", claim.receipt.numerics, now.numerics);
  differences.add("sampler", claim.receipt.sampler, now.sampler);
  differences.add("kv_dtype", claim.receipt.kv_dtype, now.kv_dtype);
  differences.add("device_class", claim.receipt.device_class, now.device_class);
  return decide(std::move(finding), Verdict::kNotComparable,
                "VERSION_MISMATCH: equal bytes are promised within one engine build, numerics, sampler, KV type and "
                "device class; verify where these are the receipt's");
}

}  // namespace

base::Result<Claim> parse_claim(std::string_view json) {
  boost::system::error_code ec;
  const bj::value parsed = bj::parse(json, ec);
  if (ec || !parsed.is_object()) return invalid("it is not a JSON object");
  const bj::object* around = &parsed.get_object();
  Claim claim;
  claim.model = text_at(*around, "model");
  if (const bj::object* end = object_at(*around, "end")) around = end;
  const bj::object* receipt = object_at(*around, "receipt");
  if (receipt == nullptr && around->contains("status") && around->contains("job_id")) {
    return base::fail(ErrorCode::kInvalidParams,
                      "the job has no receipt: only a completed one gets it; llorch show JOB says how it stands");
  }
  if (receipt != nullptr) {
    if (const auto reason = text_at(*around, "stop_reason")) {
      claim.stop_reason = wire::enum_from_name<wire::StopReason>(*reason);
    }
  }
  auto decoded = wire::decode<Receipt>(bj::serialize(receipt == nullptr ? *around : *receipt));
  if (!decoded) return invalid(decoded.error().message);
  claim.receipt = std::move(*decoded);
  TRY(check(claim.receipt));
  return claim;
}

std::string_view name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kMatch: return "match";
    case Verdict::kOutputDiffers: return "output_differs";
    case Verdict::kInputsDiffer: return "inputs_differ";
    case Verdict::kNotComparable: return "not_comparable";
  }
  return "";
}

int exit_code_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kMatch: return 0;
    case Verdict::kOutputDiffers: return 1;
    case Verdict::kInputsDiffer: return 2;
    case Verdict::kNotComparable: return 4;
  }
  return 1;
}

Finding compare_request(const Claim& claim, const wire::SubmitRequest& request) {
  Finding finding;
  Differences differences(finding);
  std::string explanation = "this is not the request of the receipt";
  // Of tokens that the text does not say, the repetition's hash is compared.
  if (request.prompt && !request.suffix && !request.parse_special.value_or(false)) {
    const auto hash = [](std::string_view text) { return base::to_hex(base::sha256(text)); };
    differences.add("prompt_sha256", claim.receipt.prompt_sha256, base::to_hex(wire::digest_of(*request.prompt)));
    const std::string& text = request.prompt->text;
    std::string_view shorter = text;
    if (shorter.ends_with('\n')) shorter.remove_suffix(1);
    if (hash(shorter) == claim.receipt.prompt_sha256 && shorter.size() != text.size()) {
      explanation += "; the receipt's prompt is this one without its last line break";
    } else if (hash(text + "\n") == claim.receipt.prompt_sha256) {
      explanation += "; the receipt's prompt is this one with a line break at its end";
    }
  }
  if (claim.receipt.parameters_sha256) {
    differences.add("parameters_sha256", *claim.receipt.parameters_sha256,
                    wire::parameters_sha256(wire::effective_temperature(request), request.sampling, request.stop));
    if (!finding.differences.empty() && finding.differences.back().field == "parameters_sha256") {
      explanation += "; give the temperature, sampling options and stop texts of the original run";
    }
  }
  return decide(std::move(finding), Verdict::kInputsDiffer, std::move(explanation));
}

Finding compare_worker(const Claim& claim, const wire::WorkerInfo& worker) {
  Finding model = compare_model(claim, worker.model_digest);
  return model.verdict != Verdict::kMatch ? model : compare_environment(claim, worker);
}

Finding compare_result(const Claim& claim, const wire::EndEvent& end) {
  if (!end.receipt) {
    return {Verdict::kNotComparable, "the worker that ran the job signs no receipts", {}};
  }
  const Receipt& then = claim.receipt;
  const Receipt& now = *end.receipt;
  if (Finding model = compare_model(claim, now.model_digest); model.verdict != Verdict::kMatch) return model;
  Finding inputs;
  Differences input(inputs);
  input.add("seed", std::to_string(then.seed), std::to_string(now.seed));
  input.add("prompt_sha256", then.prompt_sha256, now.prompt_sha256);
  if (then.parameters_sha256 && now.parameters_sha256) {
    input.add("parameters_sha256", *then.parameters_sha256, *now.parameters_sha256);
  }
  inputs =
      decide(std::move(inputs), Verdict::kInputsDiffer,
             "this is not the request of the receipt; a conversation is rendered by the model's template, which may "
             "also print the date");
  if (inputs.verdict != Verdict::kMatch) return inputs;
  if (Finding other = compare_environment(claim, now); other.verdict != Verdict::kMatch) return other;

  Finding output;
  Differences differences(output);
  differences.add("tokens_out", std::to_string(then.tokens_out), std::to_string(now.tokens_out));
  differences.add("output_sha256", then.output_sha256, now.output_sha256);
  // A run of exactly tokens_out tokens ends with max_tokens where the original met another limit.
  using wire::StopReason;
  if (claim.stop_reason == StopReason::kEos || claim.stop_reason == StopReason::kStop) {
    differences.add("stop_reason", std::string(wire::enum_name(*claim.stop_reason)),
                    std::string(wire::enum_name(end.stop_reason)));
  }
  return decide(std::move(output), Verdict::kOutputDiffers,
                then.parameters_sha256
                    ? "the same request gave other bytes; please report it with both receipts"
                    : "other bytes; the receipt does not say its sampling parameters, so check that they are the same");
}

}  // namespace llorch::cli::verify
