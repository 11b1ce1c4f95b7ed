#include "pool_managerd/provisioner/sources/locate.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <chrono>
#include <span>

#include "base/sha256.h"
#include "net/http/url.h"

namespace llorch::pool_managerd::provisioner::sources {
namespace {

constexpr int kSignedForS = 604'800;

RemoteFile remote_file(std::string url) {
  std::string name = safe_file_name(url);
  return {.name = std::move(name), .request = {.url = std::move(url)}, .sha256 = {}, .size_bytes = {}};
}

// A link that was signed for the file alone leads to no signature.
Artifact at_url(const std::string& url) {
  Artifact out{.pinned = url, .files = {remote_file(url)}};
  if (url.find_first_of("?#") != std::string::npos) return out;
  for (const std::string_view end : kSignatureEnds) out.signatures.push_back(remote_file(url + std::string(end)));
  return out;
}

Artifact in_bucket(const Source& source, const LocateContext& context) {
  const auto file = [&](std::string_view end) {
    Source at = source;
    at.location += end;
    return remote_file(s3_url(at, context.settings, context.now.unix_ms));
  };
  Artifact out{.pinned = "s3://" + source.location, .files = {file("")}};
  for (const std::string_view end : kSignatureEnds) out.signatures.push_back(file(end));
  return out;
}

std::string encode_path(std::string_view path) {
  std::string out;
  while (true) {
    const std::size_t slash = path.find('/');
    out += net::http::percent_encode(path.substr(0, slash));
    if (slash == std::string_view::npos) return out;
    out += '/';
    path.remove_prefix(slash + 1);
  }
}

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

}  // namespace

base::Result<Artifact> locate(const Source& source, const LocateContext& context) {
  switch (source.scheme) {
    case Scheme::kHub: return locate_on_hub(source, context);
    case Scheme::kOci: return locate_in_registry(source, context);
    case Scheme::kPypi: return locate_package(source, context);
    case Scheme::kHttps: return at_url(source.location);
    case Scheme::kS3: return in_bucket(source, context);
  }
  return base::fail(base::ErrorCode::kInternal, "no such scheme");
}

std::string s3_url(const Source& source, const SourceSettings& settings, std::int64_t unix_ms) {
  const std::string path = "/" + encode_path(source.location);
  if (settings.s3_key_id.empty()) return settings.s3_url + path;
  const std::tm time = fmt::gmtime(static_cast<std::time_t>(unix_ms / 1000));
  const std::string date = fmt::format("{:%Y%m%d}", time), stamp = fmt::format("{:%Y%m%dT%H%M%SZ}", time);
  const std::string scope = fmt::format("{}/{}/s3/aws4_request", date, settings.s3_region);
  const std::string query = fmt::format(
      "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={}&X-Amz-Date={}&X-Amz-Expires={}&X-Amz-SignedHeaders=host",
      net::http::percent_encode(settings.s3_key_id + "/" + scope), stamp, kSignedForS);
  const std::size_t host_at = settings.s3_url.find("://");
  const std::string host = host_at == std::string::npos ? settings.s3_url : settings.s3_url.substr(host_at + 3);
  const std::string canonical = fmt::format("GET\n{}\n{}\nhost:{}\n\nhost\nUNSIGNED-PAYLOAD", path, query, host);
  const std::string to_sign =
      fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", stamp, scope, base::to_hex(base::sha256(canonical)));
  base::Sha256Digest key = base::hmac_sha256(bytes_of("AWS4" + settings.s3_secret), date);
  for (const std::string_view part :
       {std::string_view(settings.s3_region), std::string_view("s3"), std::string_view("aws4_request")}) {
    key = base::hmac_sha256(key, part);
  }
  return fmt::format("{}{}?{}&X-Amz-Signature={}", settings.s3_url, path, query,
                     base::to_hex(base::hmac_sha256(key, to_sign)));
}

}  // namespace llorch::pool_managerd::provisioner::sources
