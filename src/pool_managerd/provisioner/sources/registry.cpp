// Models in registries that speak the OCI distribution protocol, as artifacts with a GGUF layer.
#include <fmt/core.h>

#include <algorithm>

#include "net/http/url.h"
#include "pool_managerd/provisioner/sources/answer.h"
#include "pool_managerd/provisioner/sources/locate.h"

namespace llorch::pool_managerd::provisioner::sources {
namespace {

using base::ErrorCode;

// Registries of this machine speak plain HTTP, as everywhere else in this protocol.
std::string server_of(const std::string& registry) {
  const bool is_local = registry.starts_with("localhost") || registry.starts_with("127.");
  return (is_local ? "http://" : "https://") + registry;
}

// VALUE of NAME="VALUE" in a WWW-Authenticate header.
std::string parameter(std::string_view header, std::string_view name) {
  const std::string mark = fmt::format("{}=\"", name);
  const std::size_t at = header.find(mark);
  if (at == std::string_view::npos) return {};
  header.remove_prefix(at + mark.size());
  return std::string(header.substr(0, header.find('"')));
}

// The token that `challenge` asks for: one that anybody gets.
base::Result<std::string> token_for(std::string_view challenge, const LocateContext& context) {
  const std::string realm = parameter(challenge, "realm");
  if (!challenge.starts_with("Bearer ") || realm.empty()) {
    return base::fail(ErrorCode::kForbidden, "the registry asks for a login, which is not offered to registries");
  }
  const std::string url =
      fmt::format("{}{}service={}&scope={}", realm, realm.find('?') == std::string::npos ? '?' : '&',
                  net::http::percent_encode(parameter(challenge, "service")),
                  net::http::percent_encode(parameter(challenge, "scope")));
  const auto reply = TRY(context.web.get_whole({.url = url}, kAnswerBytesMax, context.stop));
  const auto answer = TRY(parse_answer(reply.body));
  std::string token = text_of(&answer, "token");
  if (token.empty()) token = text_of(&answer, "access_token");
  const bool is_plain = std::all_of(token.begin(), token.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (token.empty() || !is_plain) return base::fail(ErrorCode::kUntrustedArtifact, "the registry gives no token");
  return "Bearer " + token;
}

bool is_model(const boost::json::value& layer) {
  const std::string type = text_of(&layer, "mediaType");
  if (type == "application/vnd.ollama.image.model" || type.find("gguf") != std::string::npos) return true;
  return text_of(member(&layer, "annotations"), "org.opencontainers.image.title").ends_with(".gguf");
}

}  // namespace

base::Result<Artifact> locate_in_registry(const Source& source, const LocateContext& context) {
  const std::size_t slash = source.location.find('/');
  const std::string server = server_of(source.location.substr(0, slash));
  const std::string repository = source.location.substr(slash + 1);
  web::WebRequest request{.url = fmt::format("{}/v2/{}/manifests/{}", server, repository, source.revision),
                          .headers = {"Accept: application/vnd.oci.image.manifest.v1+json, "
                                      "application/vnd.docker.distribution.manifest.v2+json"}};
  const auto first = TRY(context.web.get_once(request, kAnswerBytesMax, context.stop));
  if (first.head.status == 401) {
    request.authorization = TRY(token_for(first.head.header("www-authenticate"), context));
  }
  const auto reply = TRY(context.web.get_whole(request, kAnswerBytesMax, context.stop));
  const auto manifest = TRY(parse_answer(reply.body));
  const std::string digest = base::to_hex(base::sha256(reply.body));
  if (source.revision.starts_with("sha256:") && source.revision.substr(7) != digest) {
    return base::fail(ErrorCode::kUntrustedArtifact, "the registry's manifest has another digest than was asked for");
  }
  const auto* layers = member(&manifest, "layers");
  Artifact out{.pinned = fmt::format("oci:{}@sha256:{}", source.location, digest)};
  if (layers != nullptr && layers->is_array()) {
    for (const auto& layer : layers->get_array()) {
      const std::string layer_digest = text_of(&layer, "digest");
      if (!is_model(layer) || !layer_digest.starts_with("sha256:") || !is_sha256(layer_digest.substr(7))) continue;
      request.url = fmt::format("{}/v2/{}/blobs/{}", server, repository, layer_digest);
      out.files.push_back({.name = safe_file_name(repository) + ".gguf",
                           .request = request,
                           .sha256 = layer_digest.substr(7),
                           .size_bytes = size_of(layer)});
      return out;
    }
  }
  return base::fail(ErrorCode::kModelNotFound, "this artifact has no layer with a GGUF model");
}

}  // namespace llorch::pool_managerd::provisioner::sources
