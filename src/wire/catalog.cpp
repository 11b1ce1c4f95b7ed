#include "wire/catalog.h"

#include "wire/field.h"
#include "wire/health_reason_fields.h"
#include "wire/model_facts_fields.h"
#include "wire/pull_error_message.h"

namespace llorch::wire {

namespace {
constexpr Bounds kName{1, 128};
constexpr Bounds kReference{1, 4096};
constexpr Bounds kCount{0, 1e15};

base::Result<> check_checksum(const std::string& checksum) {
  constexpr std::string_view kPrefix = "sha256:";
  if (checksum.empty()) return {};
  if (checksum.size() == kPrefix.size() + 64 && checksum.starts_with(kPrefix) &&
      checksum.find_first_not_of("0123456789abcdef", kPrefix.size()) == std::string::npos) {
    return {};
  }
  return field_error("checksum", "format", "checksum is sha256: and 64 hexadecimal digits in lower case");
}
}  // namespace

template <>
struct EnumNames<PullState> {
  static constexpr auto names = std::array{std::pair{PullState::kQueued, std::string_view("queued")},
                                           std::pair{PullState::kLocating, std::string_view("locating")},
                                           std::pair{PullState::kFetching, std::string_view("fetching")},
                                           std::pair{PullState::kFinishing, std::string_view("finishing")},
                                           std::pair{PullState::kDone, std::string_view("done")},
                                           std::pair{PullState::kFailed, std::string_view("failed")},
                                           std::pair{PullState::kCancelled, std::string_view("cancelled")}};
};
template <>
struct EnumNames<ChatFormatSource> {
  static constexpr auto names =
      std::array{std::pair{ChatFormatSource::kTemplate, std::string_view("template")},
                 std::pair{ChatFormatSource::kConfiguration, std::string_view("configuration")},
                 std::pair{ChatFormatSource::kDefault, std::string_view("default")}};
};
template <>
struct EnumNames<ModelLifecycle> {
  static constexpr auto names = std::array{std::pair{ModelLifecycle::kActive, std::string_view("Active")},
                                           std::pair{ModelLifecycle::kRetired, std::string_view("Retired")}};
};

template <>
struct EnumNames<VerifyOutcome> {
  static constexpr auto names = std::array{std::pair{VerifyOutcome::kRunning, std::string_view("running")},
                                           std::pair{VerifyOutcome::kPass, std::string_view("pass")},
                                           std::pair{VerifyOutcome::kFail, std::string_view("fail")},
                                           std::pair{VerifyOutcome::kNone, std::string_view("none")}};
};

template <>
struct Table<ModelVerification> {
  using S = ModelVerification;
  static Fields fields() {
    return {required("outcome", &S::outcome, "none: it could not be done, and nothing is known of the bytes."),
            required("unix_ms", &S::unix_ms, "When it ended; of one that runs, when it began."),
            optional("found", &S::found, "sha256:<hex> that the files have; empty: they were not read to the end."),
            optional("message", &S::message, "Of all but a pass.")};
  }
};
template <>
struct Table<VerifyReply> {
  using S = VerifyReply;
  static Fields fields() { return {required("model_id", &S::model_id), required("status", &S::status)}; }
};
template <>
struct Table<PeerOffer> {
  using S = PeerOffer;
  static Fields fields() {
    return {required("pool_id", &S::pool_id, "", kName), required("endpoint", &S::endpoint, "", kReference),
            required("checksum", &S::checksum),
            required("grant", &S::grant, "Opens this model for a while.", {1, 256})};
  }
  static base::Result<> validate(const S& r) { return check_checksum(r.checksum); }
};
template <>
struct Table<ModelFile> {
  using S = ModelFile;
  static Fields fields() {
    return {required("name", &S::name, "", {1, 256}), required("size_bytes", &S::size_bytes, "", kCount)};
  }
};
template <>
struct Table<ModelFiles> {
  using S = ModelFiles;
  static Fields fields() { return {required("checksum", &S::checksum), required("files", &S::files, "", {1, 1000})}; }
};
template <>
struct Table<PoolPullRequest> {
  using S = PoolPullRequest;
  static Fields fields() {
    return {required("source", &S::source, "hf:, https:, s3:, oci: or pypi: reference.", kReference),
            optional("checksum", &S::checksum, "sha256:<hex> that the model must have."),
            optional("peers", &S::peers, "Pools that have it; they are asked before the source is.", {0, 64})};
  }
  static base::Result<> validate(const S& r) { return check_checksum(r.checksum); }
};
template <>
struct Table<PullStatus> {
  using S = PullStatus;
  static constexpr Bounds kText{0, 256};
  static constexpr Bounds kPath{0, 8192};  // a pinned reference is longer than the one that was asked for
  static constexpr Bounds kBytes{0, kReportedBytesMax};
  static Fields fields() {
    return {
        required("pull_id", &S::pull_id, "", kText),
        required("state", &S::state),
        optional("source", &S::source, "Once it is located: pinned, so that it means the same bytes for ever.", kPath),
        optional("bytes_done", &S::bytes_done, "", kBytes),
        optional("bytes_total", &S::bytes_total, "0: not known yet.", kBytes),
        optional("bytes_per_second", &S::bytes_per_second, "", kBytes),
        optional("eta_ms", &S::eta_ms, "", {0, 1000 * kReportedBytesMax}),  // of one byte a second
        optional("model_ref", &S::model_ref, "Of a pull that is done.", kPath),
        optional("checksum", &S::checksum, "sha256:<hex>, the digest of the model.", kText),
        optional("size_bytes", &S::size_bytes, "", kBytes),
        optional("peer_pool_id", &S::peer_pool_id, "The pool that gave it; absent: it came from its source.", kText),
        optional("signature", &S::signature, "The signature's file beside the model; empty: there is none.", kText),
        optional("error_code", &S::error_code, "", kText),
        optional("error_message", &S::error_message, "", {0, kPullErrorBytesMax})};
  }
};
template <>
struct Table<ChatFormatFacts> {
  using S = ChatFormatFacts;
  static Fields fields() {
    return {required("name", &S::name, "Of docs/guide/tool-calls.md."),
            required("source", &S::source, "Who decided: the model's template, models.chat_format, or neither."),
            required("reason", &S::reason),
            required("control_tokens", &S::control_tokens, "Markers of the format that are one token of the model."),
            optional("without_tools", &S::without_tools, "Of requests that offer no tools, where that differs.")};
  }
};
template <>
struct Table<CatalogModel> {
  using S = CatalogModel;
  static Fields fields() {
    return {required("model_id", &S::model_id),
            required("model_ref", &S::model_ref, "Empty while the model has not come."),
            required("lifecycle_state", &S::lifecycle_state, "A request for a retired model is refused."),
            optional("source", &S::source, "Where it was pulled from."),
            optional("checksum", &S::checksum, "sha256:<hex>; a job is refused if the file has another."),
            optional("size_bytes", &S::size_bytes),
            optional("pool_id", &S::pool_id, "The pool that has the file."),
            optional("pinned", &S::pinned, "Garbage collection leaves it alone."),
            optional("used_unix_ms", &S::used_unix_ms, "When a job named it last."),
            optional("signature", &S::signature,
                     "The file that its publisher signed it with, kept and not checked; empty: there is none."),
            optional("verification", &S::verification, "How the last one ended that was asked for."),
            optional("pull", &S::pull, "How far the pull is, or why it failed; absent once it is done."),
            optional("facts", &S::facts, "With facts=true: of the file, by a pool."),
            optional("chat_format", &S::chat_format, "With facts=true: how its calls and thoughts are read."),
            optional("reason", &S::reason, "With facts=true: why there are none.")};
  }
};
template <>
struct Table<CatalogModelList> {
  static Fields fields() { return {required("models", &CatalogModelList::models)}; }
};
template <>
struct Table<CreateCatalogModelRequest> {
  using S = CreateCatalogModelRequest;
  static Fields fields() {
    return {
        optional("model_id", &S::model_id, "What requests will name; omitted: made from the reference.", kName),
        required("model_ref", &S::model_ref,
                 "A name of GET /v2/catalog/known, or a file:, hf:, https:, s3:, oci: or pypi: reference.", kReference),
        optional("checksum", &S::checksum, "sha256:<hex> that the model must have."),
        optional("pool_id", &S::pool_id, "Where to; omitted: the first healthy pool.", {1, 256})};
  }
  static base::Result<> validate(const S& r) { return check_checksum(r.checksum.value_or("")); }
};
template <>
struct Table<CatalogStateRequest> {
  using S = CatalogStateRequest;
  static Fields fields() {
    return {optional("lifecycle_state", &S::lifecycle_state),
            optional("pinned", &S::pinned, "Garbage collection leaves it alone.")};
  }
};
template <>
struct Table<CatalogRemoved> {
  using S = CatalogRemoved;
  static Fields fields() {
    return {required("removed", &S::removed, "Names."), required("bytes_freed", &S::bytes_freed)};
  }
};
template <>
struct Table<CatalogGcRequest> {
  using S = CatalogGcRequest;
  static Fields fields() {
    return {optional("unused_ms", &S::unused_ms, "What no job has named for so long is removed.", kCount),
            optional("bytes_max", &S::bytes_max,
                     "Then the models least lately named, until the rest takes no more than this.", kCount)};
  }
};
template <>
struct Table<KnownModel> {
  using S = KnownModel;
  static Fields fields() {
    return {required("model_id", &S::model_id, "", kName),
            required("source", &S::source, "Reference that is pulled.", kReference),
            optional("checksum", &S::checksum, "sha256:<hex>; empty: its source's own is trusted."),
            required("size_bytes", &S::size_bytes),
            optional("parameters", &S::parameters),
            required("licence", &S::licence),
            optional("chat_template", &S::chat_template, "Empty: for completion."),
            optional("about", &S::about),
            optional("fits", &S::fits, "In the largest device there is; absent: no pool has one.")};
  }
  static base::Result<> validate(const S& m) { return check_checksum(m.checksum); }
};
template <>
struct Table<KnownModelList> {
  static Fields fields() { return {required("models", &KnownModelList::models)}; }
};
template <>
struct Table<NamedModel> {
  using S = NamedModel;
  static Fields fields() {
    return {required("model_id", &S::model_id, "", kName),
            required("source", &S::source, "", kReference),
            optional("pinned_source", &S::pinned_source),
            optional("wanted_checksum", &S::wanted_checksum),
            optional("pool_id", &S::pool_id),
            optional("model_ref", &S::model_ref),
            optional("checksum", &S::checksum),
            optional("size_bytes", &S::size_bytes),
            optional("lifecycle_state", &S::lifecycle_state),
            optional("pinned", &S::pinned),
            optional("watched", &S::watched),
            optional("signature", &S::signature),
            optional("verification", &S::verification),
            optional("created_unix_ms", &S::created_unix_ms),
            optional("used_unix_ms", &S::used_unix_ms)};
  }
};
template <>
struct Table<NamedModels> {
  using S = NamedModels;
  static Fields fields() { return {required("version", &S::version), required("models", &S::models)}; }
};

}  // namespace llorch::wire

using namespace llorch::wire;
LLORCH_INSTANTIATE_WIRE(PoolPullRequest)
LLORCH_INSTANTIATE_WIRE(PullStatus)
LLORCH_INSTANTIATE_WIRE(ModelFiles)
LLORCH_INSTANTIATE_WIRE(CatalogModel)
LLORCH_INSTANTIATE_WIRE(CatalogModelList)
LLORCH_INSTANTIATE_WIRE(CreateCatalogModelRequest)
LLORCH_INSTANTIATE_WIRE(CatalogStateRequest)
LLORCH_INSTANTIATE_WIRE(CatalogRemoved)
LLORCH_INSTANTIATE_WIRE(VerifyReply)
LLORCH_INSTANTIATE_WIRE(CatalogGcRequest)
LLORCH_INSTANTIATE_WIRE(KnownModelList)
LLORCH_INSTANTIATE_WIRE(NamedModels)
LLORCH_INSTANTIATE_ENUM(PullState)
LLORCH_INSTANTIATE_ENUM(ModelLifecycle)
LLORCH_INSTANTIATE_ENUM(VerifyOutcome)
