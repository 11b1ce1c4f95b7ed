#include "worker/loading/digest_beside_load.h"

#include <fmt/format.h>

#include <utility>

namespace llorch::worker::loading {

using base::ErrorCode;
using base::Result;
using engine::io::StampedDigest;

namespace {

Result<std::string> hash(const std::filesystem::path& model, const std::stop_token& stop) {
  return engine::io::model_digest(model, [&](std::uint64_t, std::uint64_t) -> Result<> {
    if (!stop.stop_requested()) return {};
    return base::fail(ErrorCode::kCancelled, "the load ended before the digest was computed");
  });
}

}  // namespace

DigestBesideLoad::DigestBesideLoad(std::filesystem::path model, std::string stamp)
    : model_(std::move(model)), stamp_(std::move(stamp)) {}

Result<DigestBesideLoad> DigestBesideLoad::start(const std::filesystem::path& model, StampedDigest known) {
  DigestBesideLoad out(model, TRY(engine::io::model_stamp(model)));
  if (known.stamp == out.stamp_) {
    std::promise<Result<std::string>> told;
    out.known_ = known.digest;
    told.set_value(std::move(known.digest));
    out.digest_ = told.get_future();
  } else {
    out.digest_ = std::async(std::launch::async, [model, stop = out.stop_.get_token()] { return hash(model, stop); });
  }
  return out;
}

DigestBesideLoad::~DigestBesideLoad() { stop_.request_stop(); }

Result<std::string> DigestBesideLoad::finish() {
  Result<std::string> digest = digest_.get();
  if (TRY(engine::io::model_stamp(model_)) == stamp_) return digest;  // else it is nobody's, and so is its error
  return base::fail(
      ErrorCode::kIoError,
      fmt::format("{} was changed while it was loaded; load it again when it is complete", model_.string()));
}

}  // namespace llorch::worker::loading
