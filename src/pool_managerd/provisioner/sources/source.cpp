#include "pool_managerd/provisioner/sources/source.h"

#include <algorithm>
#include <cctype>

#include "engine/io/model_layout.h"

namespace llorch::pool_managerd::provisioner::sources {
namespace {

constexpr std::size_t kNameMax = 128;
constexpr std::string_view kOllamaRegistry = "registry.ollama.ai";

tl::unexpected<base::Error> refuse(std::string message) {
  return base::fail(
      base::Error{base::ErrorCode::kInvalidParams, std::move(message), {}}.with("field", std::string("source")));
}

bool is_plain(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-'; }
// Parts of letters, digits, dots, dashes and underscores between slashes, none of them "." or "..".
bool is_path(std::string_view text) {
  if (text.empty() || text.size() > 1024) return false;
  while (true) {
    const std::size_t slash = text.find('/');
    const std::string_view part = text.substr(0, slash);
    if (part.empty() || part == "." || part == ".." || !std::all_of(part.begin(), part.end(), is_plain)) return false;
    if (slash == std::string_view::npos) return true;
    text.remove_prefix(slash + 1);
  }
}

// Cuts `text` at the first `separator`; what follows it is returned.
std::string_view cut(std::string_view& text, std::string_view separator) {
  const std::size_t at = text.find(separator);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = text.substr(at + separator.size());
  text = text.substr(0, at);
  return rest;
}

base::Result<Source> parse_hub(std::string_view text) {
  Source out{.scheme = Scheme::kHub};
  out.selector = cut(text, "::file=");
  if (out.selector.empty()) out.selector = cut(text, ":");
  out.revision = cut(text, "@");
  out.location = text;
  const bool two_parts = std::count(text.begin(), text.end(), '/') == 1;
  if (!two_parts || !is_path(text) || (!out.revision.empty() && !is_path(out.revision)) ||
      (!out.selector.empty() && !is_path(out.selector))) {
    return refuse("a hub reference is hf:ORG/REPO[@REVISION][:FILE or :QUANTIZATION]");
  }
  return out;
}

// HOST or HOST:PORT.
bool is_registry(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (!is_path(text.substr(0, colon))) return false;
  if (colon == std::string_view::npos) return true;
  const std::string_view port = text.substr(colon + 1);
  return !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string_view::npos;
}

base::Result<Source> parse_oci(std::string_view text) {
  if (text.starts_with("//")) text.remove_prefix(2);
  Source out{.scheme = Scheme::kOci};
  out.revision = cut(text, "@");
  const std::size_t slash = text.find('/');
  const std::string_view first = text.substr(0, slash);
  const bool has_registry =
      slash != std::string_view::npos && (first.find_first_of(".:") != std::string_view::npos || first == "localhost");
  std::string registry(has_registry ? first : kOllamaRegistry);
  std::string_view repository = has_registry ? text.substr(slash + 1) : text;
  const std::string_view tag = cut(repository, ":");
  if (out.revision.empty()) out.revision = tag.empty() ? "latest" : tag;
  const std::string owner = !has_registry && slash == std::string_view::npos ? "library/" : "";
  const std::string_view revision =
      out.revision.starts_with("sha256:") ? std::string_view(out.revision).substr(7) : std::string_view(out.revision);
  if (!is_registry(registry) || !is_path(repository) || !is_path(revision) ||
      revision.find('/') != std::string_view::npos) {
    return refuse("an OCI reference is oci:[REGISTRY/]REPOSITORY[:TAG or @sha256:DIGEST]");
  }
  out.location = registry + "/" + owner + std::string(repository);
  return out;
}

base::Result<Source> parse_pypi(std::string_view text) {
  Source out{.scheme = Scheme::kPypi};
  out.selector = cut(text, ":");
  out.revision = cut(text, "@");
  const bool is_good = is_path(text) && text.find('/') == std::string_view::npos &&
                       (out.revision.empty() || is_path(out.revision)) &&
                       (out.selector.empty() || is_path(out.selector));
  if (!is_good) return refuse("a package reference is pypi:PROJECT[@VERSION][:FILE]");
  // The index knows one spelling of each name.
  for (const char c : text) {
    const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const bool dash = lower == '.' || lower == '_' || lower == '-';
    if (!dash) out.location += lower;
    if (dash && !out.location.ends_with('-')) out.location += '-';
  }
  return out;
}

}  // namespace

base::Result<Source> parse_source(std::string_view text) {
  const bool is_printable = std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (text.size() > 4096 || !is_printable)
    return refuse("a reference is up to 4096 characters of ASCII without spaces");
  const auto after = [&](std::string_view prefix) { return text.substr(prefix.size()); };
  if (text.starts_with("hf:")) return parse_hub(after("hf:"));
  if (text.starts_with("oci:")) return parse_oci(after("oci:"));
  if (text.starts_with("pypi:")) return parse_pypi(after("pypi:"));
  if (text.starts_with("https://") || text.starts_with("http://")) {
    return Source{.scheme = Scheme::kHttps, .location = std::string(text)};
  }
  if (text.starts_with("s3://")) {
    if (!is_path(after("s3://")) || after("s3://").find('/') == std::string_view::npos) {
      return refuse("an S3 reference is s3://BUCKET/KEY");
    }
    return Source{.scheme = Scheme::kS3, .location = std::string(after("s3://"))};
  }
  return refuse("models can be pulled from hf:, https:, s3:, oci: and pypi: references");
}

std::string safe_file_name(std::string_view path) {
  path = path.substr(0, path.find_first_of("?#"));
  const std::size_t slash = path.find_last_of("/\\");
  if (slash != std::string_view::npos) path.remove_prefix(slash + 1);
  std::string out;
  for (const char c : path) out += is_plain(c) ? c : '_';
  out.erase(0, std::min(out.find_first_not_of('.'), out.size()));
  if (out.size() > kNameMax) out.erase(0, out.size() - kNameMax);  // the extension stays
  out.erase(0, std::min(out.find_first_not_of('.'), out.size()));
  return out.empty() ? "model" : out;
}

std::string safe_model_name(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos || !engine::io::is_of_hf_model(path)) return safe_file_name(path);
  return std::string(path.substr(0, slash + 1)) + safe_file_name(path.substr(slash + 1));
}

}  // namespace llorch::pool_managerd::provisioner::sources
